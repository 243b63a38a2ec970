#!/bin/sh
# Makes this process a host of its own: with a name, and with all that this machine has, changed by nobody else.
# Its changes are in memory, and go with its last process.
#
# usage, in a mount and a UTS namespace of its own: host.sh NAME PLACE ORIGIN HEADPOND ETCD UNITS
set -eu
name=$1 place=$2 origin=$3 headpond=$4 etcd=$5 units=$6
root=$place/root over=$place/over
mount --make-rprivate /
hostname "$name"
mkdir "$root" "$over" "$place/log"
mount -t tmpfs over "$over"
mkdir "$over/upper" "$over/work"
mount -t overlay "$name" -o "lowerdir=/,upperdir=$over/upper,workdir=$over/work" "$root"
for kernels in dev proc sys; do
    mount --rbind "/$kernels" "$root/$kernels"
done
mount -t tmpfs run "$root/run"
mount -t tmpfs tmp "$root/tmp"
# What another installation may have left on this machine.
rm -rf "$root/var/lib/mysql" "$root/etc/headpond" "$root/nvme" "$root/slow" "$root/root/authority" "$root/var/lib/etcd"
rm -f "$root/etc/default/etcd"
mkdir -p "$root/var/lib/mysql" "$root/etc/headpond" "$root/etc/default" "$root/nvme" "$root/slow/mysql" "$root/var/lib/etcd"
mount --bind "$origin" "$root/slow/mysql"
# For scp. Every host has its own in PLACE/etc.
mount --bind "$place/etc" "$root/etc/headpond"
for other in "$place"/../*/etc; do
    at=$root/net/$(basename "${other%/etc}")/etc/headpond
    mkdir -p "$at"
    mount --bind "$other" "$at"
done
mount --bind "$place/log" "$root/var/log"
for program in "headpond $headpond" "etcd $etcd"; do
    at=$root/usr/bin/${program%% *}
    rm -f "$at"
    : > "$at"
    mount --bind "${program#* }" "$at"
done
mkdir -p "$root/usr/lib/systemd/system"
cp "$units"/*.service "$root/usr/lib/systemd/system/"
# As Debian has it.
printf '[Service]\nEnvironmentFile=-/etc/default/etcd\nExecStart=/usr/bin/etcd\n' > "$root/usr/lib/systemd/system/etcd.service"
# A database that starts up and notes what it has found.
printf '[Service]\nExecStart=cp /var/lib/mysql/ledger /run/found\n' > "$root/usr/lib/systemd/system/mariadb.service"
cp "$place/hosts" "$root/etc/hosts"
cp "$place/systemctl" "$place/scp" "$root/usr/local/bin/"
mkdir "$root/ready"
exec chroot "$root" sleep infinity
