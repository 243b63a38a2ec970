# Runs xfstests' `check` in a bed of its own: two ext4 images, and on each a headpond mount, or nothing.
#
# The caller gives it a mount namespace and a namespace of processes. With the end of this script both end, and with them
# every daemon, mount and loop device.
#
# KIND      mount: the tests run on headpond. bare: they run on ext4 itself.
# SUITE     the checkout of xfstests, built
# BED       a directory for everything that is made here
# HEADPOND  the program
# "$@"      what `check` is to run
set -euo pipefail

mkdir -p "$BED"/{bin,results,test,scratch,mnt-test,mnt-scratch}
for name in test scratch; do
    rm -f "$BED/$name.img"
    truncate -s 4G "$BED/$name.img"
    mkfs.ext4 -q -F "$BED/$name.img"
done

config=$BED/$KIND.config
export HOST_OPTIONS=$config RESULT_BASE=$BED/results/$KIND
{
    printf 'export TEST_DIR=%q SCRATCH_MNT=%q\n' "$BED/mnt-test" "$BED/mnt-scratch"
    case $KIND in
    mount)
        for name in test scratch; do
            mount -o loop "$BED/$name.img" "$BED/$name"
            mkdir "$BED/$name/origin"
        done
        for name in mount umount df; do
            printf '%s\n' "$STAND_IN" >"$BED/bin/$name"
            chmod +x "$BED/bin/$name"
        done
        printf 'export FSTYP=fuse FUSE_SUBTYP=.headpond TEST_DEV=%q SCRATCH_DEV=%q\n' \
            "$BED/test/origin" "$BED/scratch/origin"
        ;;
    bare)
        printf 'export FSTYP=ext4 TEST_DEV=%q SCRATCH_DEV=%q\n' \
            "$(losetup --find --show "$BED/test.img")" "$(losetup --find --show "$BED/scratch.img")"
        ;;
    esac
} >"$config"

cd "$SUITE"
status=0
PATH="$BED/bin:$PATH" ./check "$@" || status=$?
for device in $(losetup --noheadings --output NAME --associated "$BED/test.img" 2>/dev/null) \
    $(losetup --noheadings --output NAME --associated "$BED/scratch.img" 2>/dev/null); do
    umount --all-targets "$device" 2>/dev/null || true
    losetup --detach "$device" 2>/dev/null || true
done
exit "$status"
