#!/bin/sh
# Debian calls this with "remove" and later perhaps "purge"; RPM, which knows no purge, with the
# number of versions that remain.
set -e

reload() {
	[ -d /run/systemd/system ] || return 0
	systemctl daemon-reload
	systemctl reset-failed 'queuepump-distributor@*.service' 'queuepump-processor@*.service' || true
}

# What `systemctl enable` linked.
disable() {
	rm -f /etc/systemd/system/*.wants/queuepump[-.]*
	rmdir /etc/systemd/system/queuepump.target.wants 2>/dev/null || true
}

case "$1" in
remove) reload ;;
0)
	disable
	reload
	;;
purge)
	disable
	# What `systemctl edit` wrote.
	rm -rf /etc/systemd/system/queuepump-distributor@*.service.d \
		/etc/systemd/system/queuepump-processor@*.service.d
	rm -rf /etc/queuepump /var/lib/queuepump
	if getent passwd queuepump >/dev/null; then userdel queuepump; fi
	if getent group queuepump >/dev/null; then groupdel queuepump; fi
	reload
	;;
esac
