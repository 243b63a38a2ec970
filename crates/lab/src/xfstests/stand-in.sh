#!/bin/bash
# Stands before mount(8), umount(8) and df(1) for xfstests, which knows a FUSE file system by its device and its type.
# A device here is the origin of a headpond mount.
case ${0##*/} in
mount)
    case " $* " in *" -tfuse.headpond "* | *" -t fuse.headpond "*) ;; *) exec /bin/mount "$@" ;; esac
    case " $* " in *remount*) exec /bin/mount -i "$@" ;; esac
    options='' rest=()
    while [ $# -gt 0 ]; do
        case $1 in
        -t) shift ;;
        -tfuse*) ;;
        -o) options=$options,$2 && shift ;;
        -o*) options=$options,${1#-o} ;;
        *) rest+=("$1") ;;
        esac
        shift
    done
    origin=${rest[0]} mountpoint=${rest[1]}
    "$HEADPOND" mount "$origin" "$mountpoint" --flash "$BED/$(basename "$(dirname "$origin")").pond" --size 512M \
        --background --allow-other >"$BED/mount.log" 2>&1 || { status=$? && cat "$BED/mount.log" >&2 && exit "$status"; }
    # Not by the helper for FUSE, which would look for a program named like the type.
    [ -z "$options" ] || exec /bin/mount -i -o "remount$options" "$mountpoint"
    ;;
umount)
    arguments=()
    for argument in "$@"; do
        case $argument in
        "$BED/test/origin") argument=$BED/mnt-test ;;
        "$BED/scratch/origin") argument=$BED/mnt-scratch ;;
        esac
        arguments+=("$argument")
    done
    exec /bin/umount "${arguments[@]}"
    ;;
df)
    set -o pipefail
    /bin/df "$@" | sed 's/fuse\.headpond/fuse/'
    ;;
esac
