#!/bin/sh
# Debian calls this with "configure" and the version that was configured last; RPM with the number
# of versions that are installed now.
set -e

case "$1" in
configure) before="$2" ;;
1) before= ;;
[2-9]) before=yes ;;
*) exit 0 ;;
esac

systemd-sysusers queuepump.conf
systemd-tmpfiles --create queuepump.conf

# Where systemd does not run, as in a chroot, there is nothing to restart.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ -n "$before" ]; then
	# Running tasks may take long to finish: the package manager does not wait for them.
	systemctl --no-block try-restart 'queuepump-distributor@*.service' 'queuepump-processor@*.service'
fi
