# One load on a slow origin (/dev/vda, paced by this machine) behind one cache on flash (/dev/ubda). SIDE says which.
#
# The origin's image has HEADER sectors for what bcache notes there, then ext4 with the files `data` and `checked`. The
# cache begins empty. Words on the console: READY (the load may begin, once `begin` is in OUT), LOADED (it has ended;
# go on once `end` is there), and at the end VERIFIED, when the origin alone has the same bytes.

OUT_HERE=/mnt/out ORIGIN=/mnt/origin PLACE=/mnt/place FLASH=/dev/ubda
mkdir -p $OUT_HERE $ORIGIN $PLACE /run/say
mount -t hostfs none $OUT_HERE -o "$OUT" || exit 1
exec 2>$OUT_HERE/errors

fail() { echo "FAILED $SIDE: $*"; tail -n 5 $OUT_HERE/errors; dmesg | tail -n 5; exit 1; }
# Waits for a file of this machine's; `read` starts no process.
mkfifo /run/never; exec 9<>/run/never
await() { until [ -e "$OUT_HERE/$1" ]; do read -r -t 0.1 -u 9; done; }
sectors() { echo "$(<"/sys/block/$1/size")"; }
bcache=/sys/block/bcache0/bcache

# The server of the origin announces no volatile cache; without this no flush would leave the guest.
echo "write back" >/sys/block/vda/cache_type
origin_device() {
    dmsetup create origin --table "0 $(($(sectors vda) - HEADER)) linear /dev/vda $HEADER" && dmsetup mknodes
}

begin_bcache() {
    make-bcache --bucket "$BUCKET" --data-offset "$HEADER" -B /dev/vda -C $FLASH $1 >/run/say/make || return
    for device in $FLASH /dev/vda; do echo $device >/sys/fs/bcache/register || return; done
    until [ -e /dev/bcache0 ] && [[ $(<$bcache/state) != "no cache" ]]; do read -r -t 0.1 -u 9; done
    echo 0 >$bcache/sequential_cutoff
    echo 40 >$bcache/writeback_percent
    for threshold in $bcache/cache/congested_{read,write}_threshold_us; do echo 0 >$threshold; done
    mount /dev/bcache0 $PLACE
}

begin() {
    case $SIDE in
    none) origin_device && mount /dev/mapper/origin $PLACE ;;
    bcache-write-back) begin_bcache --writeback ;;
    bcache-write-through) begin_bcache ;;
    dm-cache)
        local all meta=$((METADATA_MIB * 2048))
        all=$(sectors ubda)
        origin_device && dmsetup create metadata --table "0 $meta linear $FLASH 0" &&
            dmsetup create blocks --table "0 $((all - meta)) linear $FLASH $meta" && dmsetup mknodes &&
            dmsetup create cached --table "0 $(sectors dm-0) cache /dev/mapper/metadata /dev/mapper/blocks \
                /dev/mapper/origin 128 1 writeback smq 0" && dmsetup mknodes && mount /dev/mapper/cached $PLACE ;;
    dm-writecache)
        origin_device && dmsetup create cached \
            --table "0 $(sectors dm-0) writecache s /dev/mapper/origin $FLASH 4096 0" && dmsetup mknodes &&
            mount /dev/mapper/cached $PLACE ;;
    headpond)
        origin_device && mount /dev/mapper/origin $ORIGIN &&
            "$HEADPOND" mount $ORIGIN $PLACE --flash $FLASH --format --background --log $OUT_HERE/headpond \
                >/run/say/mount ;;
    esac
}

# Brings everything to the origin and takes the cache away.
end() {
    if [ $SIDE = headpond ]; then
        "$HEADPOND" unmount $PLACE --quiet && umount $ORIGIN
        return
    fi
    umount $PLACE || return
    case $SIDE in
    bcache-*)
        echo 1 >$bcache/detach
        until [[ $(<$bcache/state) = "no cache" ]]; do read -r -t 0.1 -u 9; done
        echo 1 >$bcache/stop
        while [ -e $bcache ]; do read -r -t 0.1 -u 9; done
        origin_device ;;
    dm-cache)
        dmsetup suspend cached && dmsetup reload cached --table "$(dmsetup table cached | sed 's/ smq / cleaner /')" &&
            dmsetup resume cached || return
        until [ "$(dmsetup status cached | cut -d' ' -f14)" = 0 ]; do read -r -t 0.1 -u 9; done
        dmsetup remove cached ;;
    dm-writecache) dmsetup message cached 0 flush && dmsetup remove cached ;;
    esac
}

# The words of a device mapper's status.
status() { dmsetup status cached >/run/say/status && read -ra words </run/say/status; }
# What reads found in the cache, and what they did not, since it began; nothing where nobody counts.
reads_found() {
    local words
    case $SIDE in
    bcache-*) echo "reads $(<$bcache/stats_total/cache_hits) $(<$bcache/stats_total/cache_misses)" ;;
    dm-cache) status && echo "reads ${words[7]} ${words[8]}" ;;
    dm-writecache) status && echo "reads ${words[8]} $((words[7] - words[8]))" ;;
    headpond)
        words=$("$HEADPOND" status $PLACE --json)
        [[ $words =~ \"read_hits_blocks\":\ *([0-9]+) ]] && echo -n "reads ${BASH_REMATCH[1]} "
        [[ $words =~ \"read_miss_blocks\":\ *([0-9]+) ]] && echo "${BASH_REMATCH[1]}" ;;
    esac
}

# The counters of this guest, once a second until the load has ended, without a process for each. Each time the page
# cache is dropped (4: not a word of it in the log). headpond reads its origin through it, and a kernel's cache does not
# under direct I/O: memory that only one side uses would be a second cache beside the flash.
watch() {
    local line second=0
    echo 4 >/proc/sys/vm/drop_caches
    until [ -e /run/over ]; do
        echo 1 >/proc/sys/vm/drop_caches
        echo "at $EPOCHREALTIME"
        read -r line </proc/stat; echo "$line"
        while read -r line; do case $line in *" vda "* | *" ubda "*) echo "$line" ;; esac; done </proc/diskstats
        [ $((second++ % FOUND_EVERY)) != 0 ] || reads_found
        read -r -t 1 -u 9
    done
    echo "at $EPOCHREALTIME"
    reads_found
}

check() {
    (cd "$1" && eval "$2" >/run/say/check 2>&1) ||
        fail "bytes differ, or cannot be read, $3: $(grep -m 2 -E "verify|error" /run/say/check)"
}

begin || fail "it cannot be set up"
check $PLACE "$WRITE_CHECKED" "just after they were written"
sync
echo READY; await begin
watch >$OUT_HERE/watched & watcher=$!
(cd $PLACE && eval "$LOAD") >$OUT_HERE/load || fail "the load failed: $(tail -n 3 $OUT_HERE/load)"
touch /run/over; wait $watcher
echo LOADED; await end
check $PLACE "$READ_CHECKED" "after the load"
end || fail "it cannot be taken away"
mount /dev/mapper/origin $ORIGIN || fail "the origin alone is not mounted"
check $ORIGIN "$READ_CHECKED" "at the origin alone"
umount $ORIGIN
echo VERIFIED
