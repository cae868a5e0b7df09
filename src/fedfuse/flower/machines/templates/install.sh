#!/bin/sh
# Installs and starts the services of this machine: sudo sh systemd/install.sh
# The folder stays where it is, for example in /srv. Keys belong to the user fedfuse; apps run as fedfuse-apps, who
# cannot read them.
set -eu
cd "$(dirname "$0")/.."
folder=$(pwd)
case "$folder" in *[!A-Za-z0-9/._-]*) echo "$folder: move the folder to a path of letters, digits, / . _ - only" >&2; exit 1 ;; esac
[ -x venv/bin/flower-superexec ] || { echo "there is no venv: type the first command of README.md" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "run it as root: sudo sh systemd/install.sh" >&2; exit 1; }
for user in fedfuse fedfuse-apps; do
    id "$user" > /dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin "$user"
done
chmod 755 .
chown -R fedfuse: keys state
chown -R fedfuse-apps: home @APPS_FOLDERS@
[ ! -d data ] || chown fedfuse-apps: data # the files in it must be readable for fedfuse-apps
chown fedfuse:fedfuse-apps secret secret/executor.secret
chmod 750 secret
chmod 640 secret/executor.secret
for unit in systemd/*.service; do
    sed "s|@FOLDER@|$folder|g" "$unit" > "/etc/systemd/system/$(basename "$unit")"
done
systemctl daemon-reload
systemctl enable --now @UNITS@
systemctl --no-pager --lines 3 status @UNITS@
