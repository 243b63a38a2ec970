# In a guest with systemd: the unit of the packages, and a database that has their drop-in. The death of the worker is
# nothing to the database; after that of the holder, and after a holder that hangs, the mount comes back, and the database
# is started again. The example of a mount unit is started and stopped, by way of the helpers of mount and umount. At the
# end systemd shuts all down, under the load of the database, and the next mount has what it synced.
# Prints OK, or what went wrong.
work=/run/headpond-test
mkdir -p $work/origin $work/mnt $work/etc && cd $work || exit 2
units=/run/systemd/system
mkdir -p $units/mariadb.service.d || exit 2
# This machine's root is read-only, and has no package: the unit's places are replaced, and how long it is patient.
sed "s,/usr/bin/headpond,$HEADPOND,; s,/etc/headpond/,$work/etc/,; s,^WatchdogSec=.*,WatchdogSec=5s\nTimeoutAbortSec=1s," "$PACKAGING/systemd/headpond@.service" > "$units/headpond@.service"
cp "$PACKAGING/examples/systemd/mariadb.service.d/headpond.conf" $units/mariadb.service.d/
cat > etc/mysql.conf <<END
ORIGIN=$work/origin
MOUNTPOINT=$work/mnt
FLASH=$work/pool
OPTIONS="--size 64M"
END
# It numbers what it writes, and ends at the first error.
cat > database.sh <<END
cd $work/mnt || exit 1
number=\$(wc -l < numbers 2>/dev/null || echo 0)
while :; do
  number=\$((number + 1))
  echo \$number >> numbers && sync numbers || exit 1
  echo \$number > $work/told.new && mv $work/told.new $work/told
done
END
cat > $units/mariadb.service <<END
[Service]
ExecStart=/bin/bash $work/database.sh
END
# The example keeps its mount point, after which systemd names it. The other places are replaced.
mkdir -p slow /var/lib/mysql helpers sbin || exit 2
sed "s,/slow/mysql,$work/slow,; s,/nvme/pond,$work/pool2\\,size=64M,; s, /nvme\$, $work," \
  "$PACKAGING/examples/systemd/var-lib-mysql.mount" > $units/var-lib-mysql.mount
# mount looks for its helpers in /sbin, which gets two more links.
mount --bind /usr/sbin sbin && ln -s $work/sbin/* helpers/ || exit 2
for name in mount.headpond umount.fuse.headpond; do ln -s "$HEADPOND" helpers/$name || exit 2; done
mount --bind helpers /usr/sbin || exit 2
echo "[Unit]" > $units/tried.target
container=guest unshare --fork --pid --mount-proc /lib/systemd/systemd --unit=tried.target > systemd.log 2>&1 & outside=$!
cat > try.sh <<'END'
cd /run/headpond-test || exit 2
say() { echo "$1"; systemctl status --no-pager --full headpond@mysql mariadb var-lib-mysql.mount; tail -n 20 systemd.log; exit 3; }
# await WHAT CONDITION: for a minute at most.
await() { SECONDS=0; until eval "$2"; do [ $SECONDS -lt 60 ] || say "not within a minute: $1"; sleep 0.2; done; }
told() { cat told 2>/dev/null || echo 0; }
stage() { echo "$(cut -d" " -f1 /proc/uptime) s: $1"; }
goes_on() { local from; from=$(told); await "the database goes on" '[ "$(told)" -gt $((from + 20)) ]'; }
main() { systemctl show -p MainPID --value "$1"; }
await "systemd answers" 'systemctl is-system-running 2>/dev/null | grep -qE "running|degraded|starting"'
stage "systemd is up"
systemctl start mariadb || say "it does not start"
[ "$(systemctl is-active headpond@mysql)" = active ] || say "the mount was not started for the database"
goes_on
database=$(main mariadb) holder=$(main headpond@mysql)

worker=$("$HEADPOND" status mnt --json | grep '"pid"' | tr -dc 0-9)
kill -KILL "$worker" || say "no worker to kill"
goes_on
[ "$(main mariadb)" = "$database" ] && [ "$(main headpond@mysql)" = "$holder" ] || say "the death of a worker was seen"
"$HEADPOND" status mnt --json | grep -q '"takeovers": 1,' || say "no worker was taken over"

stage "a worker was killed"
# A holder that is gone, and one that hangs.
for signal in KILL STOP; do
  database=$(main mariadb) holder=$(main headpond@mysql) synced=$(cat told)
  kill -$signal "$holder" || say "no holder to send $signal"
  await "the mount is back" '[ "$(main headpond@mysql)" != 0 ] && [ "$(main headpond@mysql)" != '"$holder"' ] && [ "$(systemctl is-active headpond@mysql)" = active ]'
  await "the database is back" '[ "$(main mariadb)" != 0 ] && [ "$(main mariadb)" != '"$database"' ]'
  goes_on
done
stage "the holder was killed, and hung"
systemctl stop mariadb headpond@mysql || say "they do not stop"
mountpoint -q mnt && say "still mounted"
[ "$(wc -l < origin/numbers)" -ge "$synced" ] || say "synced numbers are missing"
seq "$(wc -l < origin/numbers)" | cmp - origin/numbers || say "the origin has other numbers"

stage "the unit has stopped"
systemctl start var-lib-mysql.mount || say "the mount unit does not start"
grep -q " /var/lib/mysql .* - fuse.headpond " /proc/self/mountinfo || say "nothing is mounted there"
echo synced > /var/lib/mysql/file && sync /var/lib/mysql/file || say "it does not serve"
systemctl stop var-lib-mysql.mount || say "the mount unit does not stop"
mountpoint -q /var/lib/mysql && say "still mounted by the mount unit"
[ "$(systemctl is-active var-lib-mysql.mount)" = inactive ] || say "the mount unit has another state"
[ "$(cat slow/file)" = synced ] && [ ! -e slow/.headpond ] || say "the origin is not complete"

stage "the mount unit has stopped"
systemctl start mariadb || say "it does not start again"
goes_on
"$HEADPOND" set mnt flush-period=off idle-flush=off shutdown-flush=1s > /dev/null || say "no settings"
goes_on
systemctl --no-block poweroff || say "it does not shut down"
END
# Within the namespace of systemd, which answers nobody else.
pid=
for look in $(seq 100); do pid=$(pgrep -P $outside) && break; sleep 0.1; done
sleep 1
nsenter -t "$pid" -p -m bash $work/try.sh || exit
for look in $(seq 600); do kill -0 $outside 2> /dev/null || break; sleep 0.1; done
kill -0 $outside 2> /dev/null && { echo "the shutdown hangs"; tail -n 40 systemd.log; exit 4; }
umount --lazy --quiet mnt
"$HEADPOND" mount origin mnt --flash pool --background > log || { cat log; exit 5; }
seq "$(wc -l < mnt/numbers)" | cmp - mnt/numbers || { echo "the numbers are others"; exit 6; }
[ "$(wc -l < mnt/numbers)" -ge "$(cat told)" ] || { echo "synced numbers are missing after the shutdown"; exit 7; }
"$HEADPOND" unmount mnt --quiet || exit 9
seq "$(cat told)" | cmp - <(head -n "$(cat told)" origin/numbers) || { echo "the origin has others"; exit 8; }
echo "OK $(uname -r)"
