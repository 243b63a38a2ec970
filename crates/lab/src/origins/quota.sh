# Quotas and blocks kept for root, in a guest: ext4 with quotas of its own, a root daemon, and a user who writes through the
# mount. Each is compared with the same in a directory beside the origin that headpond never sees.

DISK=/mnt/disk ORIGIN=$DISK/data BARE=$DISK/bare POND=/mnt/pond FLASH=/mnt/flash/pond USER=65534
mkdir -p $DISK $POND /mnt/flash /run/say

die() { echo "FAILED in $CASE, line ${BASH_LINENO[0]}: $*"; cat /run/headpond/*.log 2>/dev/null; dmesg | tail -n 5; exit 1; }
found() { echo "CASE $CASE: $*"; }
hp() { timeout -s KILL 100 "$HEADPOND" "$@"; }
user() { setpriv --reuid $USER --regid $USER --clear-groups --inh-caps=-all -- "$@"; }

# start MKFS-OPTION... : MOUNT-OPTIONS
start() {
    local make=(); while [ "$1" != : ]; do make+=("$1"); shift; done
    mkfs.ext4 -q -F -b 4096 "${make[@]}" /dev/ubda 128M && mount -o "$2" /dev/ubda $DISK || die "no disk"
    mkdir -m 777 $ORIGIN $BARE
}
pond() {
    hp mount $ORIGIN $POND --flash $FLASH --size 64M --allow-other --background "$@" >/run/say/mount 2>&1 ||
        die "mount: $(cat /run/say/mount)"
    hp set $POND sequential-cutoff=off flush-period=off >/run/say/set || die "set: $(cat /run/say/set)"
}
# The flush and the unmount succeed, whatever was refused before.
ends() {
    hp flush $POND --quiet >/run/say/flush 2>&1 || die "flush: $(cat /run/say/flush)"
    hp unmount $POND --quiet >/run/say/unmount 2>&1 || die "unmount: $(cat /run/say/unmount)"
}
# appends DIR NAME WORDS: a user appends until the file system says no, in these words. Tells how much that was, in KiB.
appends() {
    user dd if=/dev/urandom of="$1/$2" bs=64k count=4000 oflag=append conv=notrunc,fsync 2>/run/say/dd && die "no end in $1"
    grep -q "$3" /run/say/dd || die "other words in $1: $(cat /run/say/dd)"
    echo $(($(stat -c %s "$1/$2") / 1024))
}
# Not less than bare and not more, but for one write and what trees of extents take.
alike() { [ "$2" -le $(($1 + 64)) ] && [ $(($2 + 128)) -ge "$1" ] || die "$3: $1 KiB without headpond, $2 KiB with it"; }
blocks() {
    start -m 0 -O quota : usrquota
    setquota -u $USER 0 10000 0 0 $DISK || die "no quota"
    local bare through again less
    bare=$(appends $BARE file 'quota exceeded') || die "$bare"
    rm $BARE/file; sync -f $DISK
    pond
    through=$(appends $POND file 'quota exceeded') || die "$through"
    alike $bare $through "a file that grew"
    # Who has no limit goes on.
    dd if=/dev/urandom of=$POND/root bs=64k count=128 conv=fsync status=none || die "root is refused"
    sha256sum $POND/file $POND/root | sed "s:$POND:$ORIGIN:" >/run/say/sums
    hp flush $POND --quiet >/run/say/flush 2>&1 || die "flush: $(cat /run/say/flush)"
    sha256sum -c --quiet /run/say/sums || die "the origin differs"
    user dd if=/dev/urandom of=$POND/file bs=4k count=64 conv=notrunc,fsync status=none || die "overwrites are refused"
    rm $POND/file
    # In small files, each of which takes whole blocks.
    user bash -c 'text=$(printf %05000d 0); for number in {0..3999}; do echo "$text" >$0/s$number || exit; done' $POND 2>/run/say/small
    grep -q 'quota exceeded' /run/say/small || die "other words: $(cat /run/say/small)"
    less=$(find $POND -name 's*' -size +4k | wc -l)
    [ $less -ge 1230 ] && [ $less -le 1250 ] || die "$less small files of 8 KiB in 10000 KiB"
    rm $POND/s*
    again=$(appends $POND file 'quota exceeded') || die "$again"
    alike $bare $again "after removals"
    sha256sum $POND/file | sed "s:$POND:$ORIGIN:" >/run/say/sums
    ends; sha256sum -c --quiet /run/say/sums || die "the origin differs"
    found "EDQUOT at the write after $through KiB ($bare without headpond), after $less small files, and after $again KiB more; root went on"
}

# Limits of a group that the user has no other of.
groups() {
    start -m 0 -O quota : grpquota
    setquota -g $USER 0 10000 0 0 $DISK || die "no quota"
    local bare through
    bare=$(appends $BARE file 'quota exceeded') || die "$bare"
    rm $BARE/file; sync -f $DISK
    pond
    through=$(appends $POND file 'quota exceeded') || die "$through"
    alike $bare $through "a file that grew"
    ends
    found "EDQUOT at the write after $through KiB ($bare without headpond)"
}

# Limits to the number of files.
files() {
    start -m 0 -O quota : usrquota
    setquota -u $USER 0 0 0 50 $DISK || die "no quota"
    local dir counts=()
    pond
    for dir in $BARE $POND; do
        local made=0
        while user touch $dir/f$made 2>/run/say/touch; do made=$((made + 1)); [ $made -lt 100 ] || break; done
        counts+=($made); [ $dir = $BARE ] && { grep -q 'quota exceeded' /run/say/touch || die "$(cat /run/say/touch)"; rm $BARE/*; }
    done
    grep -q 'quota exceeded' /run/say/touch || die "files: ${counts[*]}: $(cat /run/say/touch)"
    [ ${counts[0]} = ${counts[1]} ] || die "files: ${counts[0]} without headpond, ${counts[1]} with it"
    user mkdir $POND/dir 2>/dev/null && die "a directory is made"
    user ln -s x $POND/link 2>/dev/null && die "a link is made"
    rm $POND/f0 && user mkdir $POND/dir || die "no room after a removal"
    ends
    found "EDQUOT at the file after ${counts[1]}, as without headpond"
}

# The last blocks are root's.
root() {
    start -m 30 : rw
    local bare through mode told=()
    bare=$(appends $BARE file 'No space left') || die "$bare"
    rm $BARE/file; sync -f $DISK
    for mode in write-back write-through; do
        pond --mode $mode
        through=$(appends $POND file 'No space left') || die "$through"
        # The pool's own marker takes some.
        [ $through -le $((bare + 64)) ] && [ $((through + 512)) -ge $bare ] || die "$mode: $bare KiB without headpond, $through KiB with it"
        dd if=/dev/urandom of=$POND/root bs=64k count=128 conv=fsync status=none || die "root is refused"
        sha256sum $POND/file $POND/root | sed "s:$POND:$ORIGIN:" >/run/say/sums
        ends; sha256sum -c --quiet /run/say/sums || die "the origin differs"
        rm $ORIGIN/*; sync -f $DISK; rm -f $FLASH; told+=($through)
    done
    found "ENOSPC for a user after ${told[*]} KiB ($bare without headpond), root had the rest"
}

case $CASE in
blocks | groups | files | root) $CASE ;;
*) die "there is no such case" ;;
esac
