#!/bin/sh
# Stands for systemd: starts units by their files and drop-ins, and again when they fail.
set -eu

# Assignments, one in a line, as systemd reads them: quotes around all of one, and no expansion.
set_all() {
    while IFS= read -r line; do
        line=${line#\"}
        case $line in *=*) export "${line%\"}" ;; esac
    done
}

start() {
    name=${1%.service} instance=
    case $name in *@*) instance=${name#*@} ;; esac
    file=/usr/lib/systemd/system/${name%"$instance"}.service
    command=$(sed -n 's/^ExecStart=//p' "$file")
    (
        for part in "$file" "/etc/systemd/system/$name.service.d"/*.conf; do
            [ -e "$part" ] || continue
            sed -n 's/^Environment=//p' "$part" > "/run/$name.environment"
            set_all < "/run/$name.environment"
            for from in $(sed -n "s/^EnvironmentFile=-\{0,1\}//p" "$part" | sed "s/%i/$instance/"); do
                set_all < "$from"
            done
        done
        status=1
        while [ $status -ne 0 ] && [ $status -ne 2 ]; do
            status=0
            eval "$command" || status=$?
            echo "$name ended: $status"
            sleep 1
        done
    ) > "/var/log/$name.log" 2>&1 < /dev/null &
    # Of these units only the one of a mount says when it is ready.
    if grep -q '^Type=notify' "$file"; then
        tries=600
        until grep -q ' fuse\.headpond ' /proc/mounts; do
            sleep 0.1
            tries=$((tries - 1))
            [ $tries -gt 0 ]
        done
    fi
}

case "$*" in
daemon-reload) ;;
"restart --no-block "*) start "$3" ;;
"enable --now "*)
    shift 2
    for unit; do start "$unit"; done
    ;;
*)
    echo "no such command here: systemctl $*" >&2
    exit 1
    ;;
esac
