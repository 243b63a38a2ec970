# In a guest with an older kernel: programs write, make and remove files while the worker is killed. Prints OK and the
# kernel, or what went wrong.
mkdir -p /tmp/work && cd /tmp/work && mkdir origin mnt || exit 2
"$HEADPOND" mount origin mnt --flash pond --size 64M --background --log log || exit 3
worker() { "$HEADPOND" status mnt --json | grep '"pid"' | tr -dc 0-9; }
( cd mnt; number=0
  while [ ! -e stop ]; do
    number=$((number + 1))
    mkdir d && echo $number > d/a && mv d/a d/b && [ "$(cat d/b)" = $number ] && rm d/b && rmdir d || exit 1
  done ) & names=$!
( number=0
  while [ ! -e mnt/stop ]; do
    number=$((number + 1))
    echo $number >> numbers && dd of=mnt/numbers if=numbers bs=4k conv=fsync,notrunc status=none || exit 1
  done ) & data=$!
for kill in $(seq "$KILLS"); do
  sleep 1
  kill -KILL "$(worker)" || exit 4
done
sleep 1
touch mnt/stop
wait $names || { echo "names: an error"; exit 5; }
wait $data || { echo "data: an error"; exit 6; }
"$HEADPOND" status mnt --json | grep -q "\"takeovers\": $KILLS," || { echo "not every kill was a take-over"; cat log; exit 7; }
"$HEADPOND" unmount mnt --quiet || exit 8
cmp numbers origin/numbers && [ "$(ls -A origin | tr '\n' ' ')" = "numbers stop " ] || { ls -A origin; exit 9; }
echo "OK $(uname -r)"
