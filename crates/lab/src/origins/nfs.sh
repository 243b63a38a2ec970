# NFS as an origin, in a guest: the kernel's server on an ext4 disk, its client over loopback. The server is stopped, started,
# made to forget; "another host" is a process on the server's side of the disk.

EXPORT=/mnt/export ORIGIN=/mnt/origin/o POND=/mnt/pond FLASH=/mnt/flash/pond
mkdir -p /mnt/{export,origin,pond,flash} /var/lib/nfs/{rpc_pipefs,sm} /run/say
touch /var/lib/nfs/{rmtab,etab,state}

die() { echo "FAILED in $CASE, line ${BASH_LINENO[0]}: $*"; cat /run/headpond/*.log 2>/dev/null; dmesg | tail -n 5; exit 1; }
found() { echo "CASE $CASE: $*"; }
hp() { "$HEADPOND" "$@"; }
# Each is given long enough for a slow machine; none should need it.
within() { timeout -s KILL "$@"; }

# A server that keeps no list of its clients grants nobody a reclaim: after a restart all locks are lost.
forgetful() { echo /nonexistent >/sys/module/nfsd/parameters/cltrack_prog; }
export_it() { exportfs -o rw,no_root_squash,fsid=0,insecure "*:$EXPORT"; }
# Shorter than 10 s of grace the kernel does not take.
server_up() { rpc.nfsd -G 10 -L 10 -N 3 4 2>/dev/null || die "no server"; }
server_down() { rpc.nfsd 0; }

start() {
    mkfs.ext4 -q -F /dev/ubda && mount /dev/ubda $EXPORT && mkdir $EXPORT/o || die "no disk"
    mount -t nfsd nfsd /proc/fs/nfsd
    server_up; export_it; rpc.mountd -N 3 2>/dev/null
    mount -t nfs4 -o vers=4.2 127.0.0.1:/ /mnt/origin || die "no mount of the origin"
}
pond() { within 100 "$HEADPOND" mount $ORIGIN $POND --flash $FLASH --background "$@" >/run/say/mount 2>&1 || die "mount: $(cat /run/say/mount)"; }
put() { dd if=/dev/urandom of=$POND/$1 bs=64k count=$2 conv=fsync,notrunc status=none || die "writing $1"; }
sums() { (cd "$1" && sha256sum [a-z]* ) || die "sums of $1"; }
same_at_server() { sums $POND >/run/say/there; sums $EXPORT/o >/run/say/here; diff /run/say/there /run/say/here || die "the origin differs"; }
daemon() { hp status $POND --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])'; }
waits_until() { for _ in $(seq 300); do "$@" && return; sleep 0.2; done; die "in vain: $*"; }

# The first lock after a start of the server waits out its grace: that is said, and Ctrl-C ends it.
grace() {
    forgetful; start
    env --default-signal=INT "$HEADPOND" mount $ORIGIN $POND --flash $FLASH --size 64M --background >/run/say/first 2>&1 & local command=$!
    waits_until grep -q 'for the lock beside the data' /run/say/first
    grep -q 'ctrl-C ends this' /run/say/first || die "not said how to end it"
    kill -INT $command; wait $command
    [ $? -eq 130 ] || die "the command was not ended"
    none() { ! pgrep -x headpond >/dev/null; }
    waits_until none
    pond --size 64M
    put a 16; within 60 "$HEADPOND" flush $POND --quiet || die "flush"
    same_at_server; hp unmount $POND --quiet || die "unmount"
    found "the wait for the lock was told and ended by Ctrl-C; the next start: $(tail -n 1 /run/say/mount)"
}

# The server is away: what is on flash is served, every command answers or says what it waits for, and the mount can be left.
away() {
    start; pond --size 64M
    put a 32; exec 5<$POND/a 6>>$POND/log; echo before >&6
    within 60 "$HEADPOND" flush $POND --quiet || die "flush"
    put a 32; dd if=$POND/a of=/dev/null bs=64k status=none
    echo during >&6
    server_down
    within 100 "$HEADPOND" flush $POND >/run/say/flush 2>&1 & local flush=$!
    waits_until grep -q 'has not answered for' /run/say/flush
    within 20 "$HEADPOND" status $POND >/run/say/status || die "status hangs"
    grep -q 'has not answered for' /run/say/status || die "status does not say it"
    python3 -c 'import os
for _ in range(3):
    for at in range(0, 32 * 65536, 65536): assert len(os.pread(5, 65536, at)) == 65536
    assert os.fstat(5).st_size == 32 * 65536' & local reader=$!
    for _ in $(seq 100); do kill -0 $reader 2>/dev/null || break; sleep 0.2; done
    kill -0 $reader 2>/dev/null && die "reads that hit flash hang"
    wait $reader || die "reads that hit flash fail"
    kill -INT $(pgrep -n -x -f "$HEADPOND flush $POND"); wait $flush; local status=$?
    [ $status -eq 73 ] || die "flush was not interrupted: $status"
    exec 5<&- 6>&-
    within 60 "$HEADPOND" unmount $POND --keep-dirty >/run/say/unmount 2>&1 || die "unmount --keep-dirty: $(cat /run/say/unmount)"
    grep -q 'does not answer' /run/say/unmount || die "not said: $(cat /run/say/unmount)"
    server_up; sleep 1
    none() { ! pgrep -x headpond >/dev/null; }
    waits_until none
    pond
    [ "$(tail -n 1 $POND/log)" = during ] || die "what was written last is lost"
    within 60 "$HEADPOND" flush $POND --quiet || die "flush after the return"
    same_at_server; hp unmount $POND --quiet || die "unmount"
    found "flash was served, status answered, flush was interrupted, the mount was left: $(grep answer /run/say/unmount | tail -n 1)"
}

# The server comes back in steps, and gives errors before it is whole: a flush that was waiting for it succeeds all the same.
back() {
    start; pond --size 64M
    put a 32; put b 32
    exportfs -ua; server_down
    within 150 "$HEADPOND" flush $POND >/run/say/flush 2>&1 & local flush=$!
    sleep 8; server_up; sleep 3; export_it
    wait $flush || die "flush: $(cat /run/say/flush)"
    same_at_server
    local errors; errors=$(hp status $POND | grep errors)
    hp unmount $POND --quiet || die "unmount"
    found "a flush outlived the server's return:$errors"
}

# The server forgets its locks, and nobody else wants the origin: the lock is taken again, and all goes on.
forgotten() {
    forgetful; start; pond --size 64M
    put a 16
    server_down; server_up
    within 100 "$HEADPOND" flush $POND --quiet || die "flush"
    lost() { dmesg | grep -q 'lost . locks'; }
    waits_until lost
    # The watch looks within seconds.
    taken() { ! python3 -c "import fcntl; fcntl.lockf(open('$EXPORT/o/.headpond/lock', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)" 2>/dev/null; }
    waits_until taken
    put b 16; within 60 "$HEADPOND" flush $POND --quiet || die "flush"
    same_at_server; hp unmount $POND --quiet || die "unmount"
    [ ! -e $EXPORT/o/.headpond ] || die "the marker stayed"
    found "the lock was lost with the server's memory, and taken again"
}

# The server forgets its locks, and another host takes the origin over: the first one writes nothing any more.
taken() {
    forgetful; start; pond --size 64M
    put a 16; within 60 "$HEADPOND" flush $POND --quiet || die "flush"
    # Nothing may be on its way when the other comes: what has begun, a kernel sends however late.
    hp set $POND flush-period=off >/run/say/set || die "set"
    put a 16; sums $EXPORT/o >/run/say/before
    server_down
    python3 - $EXPORT/o/.headpond <<'PYTHON' & local other=$!
import fcntl, json, os, sys, time
place = sys.argv[1]
lock = open(place + '/lock', 'r+')
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
marker = json.load(open(place + '/marker.json'))
marker.update(host='other', pool='99999999-0000')
marker['claim']['id'] = '0' * 32
json.dump(marker, open(place + '/theirs', 'w'))
os.rename(place + '/theirs', place + '/marker.json')
time.sleep(100)
PYTHON
    # What was looked at before is old by then; what begins sooner may still go through: docs/operations.md.
    sleep 6; server_up
    within 100 "$HEADPOND" flush $POND >/run/say/flush 2>&1; local status=$?
    [ $status -eq 72 ] && grep -q 'no longer this mount' /run/say/flush || die "flush: $status $(cat /run/say/flush)"
    hp status $POND | grep -q LOST || die "status does not say it"
    echo x 2>/dev/null >>$POND/a && die "a write was taken in"
    within 60 "$HEADPOND" unmount $POND --keep-dirty --quiet || die "unmount --keep-dirty"
    sums $EXPORT/o | diff - /run/say/before || die "the origin was written"
    grep -q '"other"' $EXPORT/o/.headpond/marker.json || die "the other's marker was touched"
    kill $other
    found "the origin that another host took was not written: $(grep 'no longer' /run/say/flush)"
}

# SIGKILL at many moments: each start goes on, and takes no file for one that somebody else changed.
kills() {
    start; pond --size 64M
    local round
    for round in 1 2 3 4 5 6 7 8; do
        # From within: the bare mount point is nobody's to write to once the daemon is dead.
        ( cd $POND; for step in $(seq 400); do
            dd if=/dev/urandom of=f$((step % 5)) bs=5000 count=30 seek=$((step % 7)) conv=notrunc,fsync status=none || exit
            cat f$(((step + 2) % 5)) >/dev/null
            [ $((step % 9)) = 0 ] && hp flush $POND --quiet
          done ) 2>/dev/null & local load=$!
        sleep 1.$((round * 7 % 10))
        kill -KILL "$(pgrep -x headpond | head -n 1)"; kill $load 2>/dev/null; wait $load 2>/dev/null
        umount -l $POND; sleep 0.5
        pond
        grep -q 'changed at the origin' /run/say/mount && die "round $round: $(cat /run/say/mount)"
    done
    within 100 "$HEADPOND" flush $POND --quiet || die "flush"
    same_at_server; hp unmount $POND --quiet || die "unmount"
    found "eight kills, and no file taken for one that somebody else had changed"
}

# The space that was promised is there, on a mount without reservations (before 4.2) as well.
space() {
    start; umount /mnt/origin; mount -t nfs4 -o vers=4.1 127.0.0.1:/ /mnt/origin || die "no mount of the origin"
    dd if=/dev/zero of=$EXPORT/filler bs=1M count=$(($(df --output=avail -m $EXPORT | tail -n 1) - 30)) status=none; sync
    pond --size 160M; hp set $POND sequential-cutoff=off >/run/say/set || die "set"
    dd if=/dev/urandom of=$POND/big bs=1M count=60 conv=fsync status=none 2>/run/say/dd && die "60 MiB were taken, and 30 are free"
    # What this server could not keep it says at the sync: the first flush after it tells the loss.
    within 150 "$HEADPOND" flush $POND --quiet && die "a loss was not told"
    within 150 "$HEADPOND" flush $POND --quiet || die "what was taken does not fit: $(df -m $EXPORT | tail -n 1)"
    same_at_server; hp unmount $POND --quiet || die "unmount"
    found "told at the write: $(head -n 1 /run/say/dd)"
}

# Removed means removed: no hidden leftovers of the NFS client, so that a directory goes right after the last file in it.
removal() {
    start; pond --size 64M
    cd $POND; python3 - <<'PYTHON' 2>/run/say/removal || die "$(tail -n 1 /run/say/removal)"
import os
os.mkdir('d0')
for round in range(40):
    d = 'd%d/' % round
    # Before the other goes: its number is not given to this one.
    os.mkdir('d%d' % (round + 1))
    names = [d + str(number) for number in range(1 + round % 4)]
    for name in names:
        with open(name, 'w') as file: file.write('x' * 5000 * (round % 3)); os.fsync(file.fileno())
        if round % 2: open(name).read()
    if round % 3 == 0: os.rename(names[-1], d + 'renamed'); names[-1] = d + 'renamed'
    for name in names: os.stat(name); os.unlink(name)
    os.rmdir(d)
PYTHON
    cd /; ls -A $EXPORT/o | grep '^\.nfs' && die "leftovers"
    hp unmount $POND --quiet || die "unmount"
    found "40 directories went right after their files, with no leftovers"
}

# A server gives the number of a removed directory to the next one at once, whoever still has it open, and NFS tells no birth times.
reuse() {
    start; pond --size 64M
    cd $POND; python3 - <<'PYTHON' 2>/run/say/reuse || die "$(tail -n 1 /run/say/reuse)"
import os
for round in range(40):
    os.mkdir('d')
    with open('d/file', 'w') as file: file.write(str(round)); os.fsync(file.fileno())
    assert open('d/file').read() == str(round)
    os.rename('d/file', 'file'); os.rmdir('d')
PYTHON
    cd /; hp unmount $POND --quiet || die "unmount"
    found "40 directories of one number were told apart"
}

# Others replace a file and a directory at the server, which may give the next ones the same numbers: both are found by their names.
others() {
    start; umount /mnt/origin; mount -t nfs4 -o vers=4.2,actimeo=1 127.0.0.1:/ /mnt/origin || die "no mount of the origin"
    pond --size 64M
    cd $POND
    local round same=0
    for round in 1 2 3 4 5 6; do
        mkdir d; echo "old $round" >d/file; echo "old $round" >file
        within 60 "$HEADPOND" flush $POND --quiet || die "flush"
        cat d/file file >/run/say/cat || die "reading"
        local before; before=$(stat -c %i $EXPORT/o/d)
        rm -r $EXPORT/o/{d,file}
        mkdir $EXPORT/o/d; echo "new $round" | tee $EXPORT/o/d/file >$EXPORT/o/file
        [ "$(stat -c %i $EXPORT/o/d)" = "$before" ] && same=$((same + 1))
        new() { [ "$(cat d/file file 2>/run/say/cat | tr '\n' ' ')" = "new $round new $round " ]; }
        waits_until new
        rm -r d file || die "removing what others made"
    done
    [ $same -gt 0 ] || die "no number was given again"
    cd /; hp unmount $POND --quiet || die "unmount"
    found "what others replaced was found by its name, with the same number $same of 6 times"
}

case $CASE in
grace | away | back | forgotten | taken | kills | space | removal | reuse | others) $CASE ;;
*) die "there is no such case" ;;
esac
