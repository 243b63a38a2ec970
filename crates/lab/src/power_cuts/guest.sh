# A machine with an origin on one disk and the pool on another, whose power goes at any moment. PHASE is what it is started
# for: `make` both, `cut` (recover, check, load until the power goes), or `end` (recover, check, leave in order).
#
# `WRONG what` on the console is a finding about headpond, told by whatever stands in this script.

DISK=/mnt/disk ORIGIN=/mnt/disk/data POND=/mnt/pond FLASH=/dev/vdb
mkdir -p $DISK $POND /run/say

wrong() { echo "WRONG $*" | tr '\n' ' '; echo; exit 0; }
pond() { "$HEADPOND" mount $ORIGIN $POND --flash $FLASH --background --log /run/say/daemon "$@" >/run/say/mount 2>&1 ||
    wrong "mount refused, status $?: $(cat /run/say/mount) $(tail -n 5 /run/say/daemon 2>/dev/null)"; }
leave() { "$HEADPOND" unmount $POND --quiet >/run/say/unmount 2>&1 ||
    wrong "unmount failed, status $?: $(cat /run/say/unmount) $(tail -n 5 /run/say/daemon)"; }
# Damage that costs nothing (41) is what two copies are for.
examine() {
    "$HEADPOND" check $FLASH --quiet >/run/say/check 2>&1
    local status=$?
    case $status in
    0) ;;
    41) echo "BLEMISH $(grep -v note /run/say/check | tr '\n' ' ')" ;;
    *) wrong "headpond check, status $status: $(cat /run/say/check)" ;;
    esac
}
verify() { "$LAB" power-cuts-verify $1 $2 --ledger $LEDGER --seed $SEED 2>&1 || wrong "verification ended with status $?"; }

for disk in vda vdb; do
    [ "$(cat /sys/block/$disk/queue/write_cache)" = "write back" ] || { echo "$disk has no volatile cache"; exit 1; }
done
mount /dev/vda $DISK || wrong "the origin's file system is not mounted: $(dmesg | tail -n 3)"

case $PHASE in
make)
    mkdir $ORIGIN
    pond --format
    "$HEADPOND" set $POND flush-period=1s dirty-threshold=2% >/run/say/set 2>&1 || wrong "set: $(cat /run/say/set)"
    leave
    ;;
*)
    echo STARTED
    examine
    pond
    verify $POND mount
    if [ "$SETTLE" = yes ]; then
        leave; examine
        verify $ORIGIN origin
        [ $PHASE = end ] || pond
    fi
    if [ $PHASE = cut ]; then
        echo LOAD
        "$LAB" power-cuts-work $POND --ledger $LEDGER --seed $SEED --load $NUMBER 2>/run/say/work
        wrong "a writer ended with status $?: $(cat /run/say/work) $(tail -n 5 /run/say/daemon)"
    fi
    ;;
esac
umount $DISK || { echo "the origin's file system is busy"; exit 1; }
