#!/bin/sh
# Debian calls this with "remove" or "upgrade"; RPM with the number of versions that remain.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac

[ -d /run/systemd/system ] || exit 0
systemctl stop 'queuepump-distributor@*.service' 'queuepump-processor@*.service'
