#!/bin/sh
# lifecycle.sh FORMAT OLD NEW VERSION: installs, upgrades, removes and purges in a copy of this
# machine's root that is thrown away: an overlay in a mount namespace of its own. What is written
# stays in the upper layer, so that the end sees what a purge leaves. systemctl is a script that
# writes down how it is called.
set -eu
format=$1 old=$2 new=$3 version=$4

if [ -z "${base:-}" ]; then
	base=$(mktemp -d)
	trap 'rmdir "$base"' EXIT
	export base
	unshare --mount --propagation private sh "$0" "$@"
	exit
fi

mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
root=$base/root
mkdir -p "$root/run/systemd/system" "$root/packages"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/packages"
cp "$old" "$root/packages/old.$format"
cp "$new" "$root/packages/new.$format"
: >"$root/packages/systemctl.log"
# RPM's scripts look into no other folder.
rm -f "$root/usr/bin/systemctl"
printf '#!/bin/sh\necho "$@" >>/packages/systemctl.log\n' >"$root/usr/bin/systemctl"
chmod 755 "$root/usr/bin/systemctl"

fail() {
	echo "FAILED: $*"
	exit 1
}
called() { # the calls of systemctl since the last time
	cat "$root/packages/systemctl.log"
	: >"$root/packages/systemctl.log"
}
in_root() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"; }
is() { # FILE-OR-FOLDER MODE OWNER
	[ "$(in_root stat -c '%a %U:%G' "$1")" = "$2 $3" ] ||
		fail "$(in_root stat -c '%n %a %U:%G' "$1"), want $2 $3"
}
units="queuepump-distributor@*.service queuepump-processor@*.service"

case $format in
deb)
	# What the packages depend on may be lacking here: it is not what is tried.
	install() { in_root dpkg --force-depends --force-confold -i "/packages/$1.deb"; }
	upgrade() { install new; }
	remove() { in_root dpkg -r queuepump; }
	;;
rpm)
	install() { in_root rpm -i --nodeps "/packages/$1.rpm"; }
	# The same one again: for its scripts that is an upgrade.
	upgrade() { in_root rpm -U --nodeps --replacepkgs /packages/new.rpm; }
	remove() { in_root rpm -e queuepump; }
	;;
esac

echo "== install"
install old
in_root getent passwd queuepump | grep -q ':/var/lib/queuepump:' || fail "there is no user"
is /etc/queuepump 2750 root:queuepump
is /var/lib/queuepump 750 queuepump:queuepump
is /usr/bin/processor 755 root:root
in_root processor version
case $(called) in *restart*) fail "the first installation restarts something" ;; esac

echo "== upgrade"
echo "workload: kept" >"$root/etc/queuepump/pump.yaml"
echo "ARGS=--discard" >"$root/etc/queuepump/a.env"
echo "# changed here" >>"$root/etc/queuepump/pump.yaml.example"
is /etc/queuepump/a.env 644 root:queuepump
upgrade
case $(in_root distributor version) in
"distributor "*) ;;
*) fail "the binary has another name" ;;
esac
case $format in
deb) in_root dpkg-query -W -f '${Version}\n' queuepump ;;
rpm) in_root rpm -q --qf '%{VERSION}\n' queuepump ;;
esac | grep -qxF "$version" || fail "the upgrade is not installed"
is /etc/queuepump 2750 root:queuepump
grep -q kept "$root/etc/queuepump/pump.yaml" || fail "the configuration was overwritten"
grep -q "changed here" "$root/etc/queuepump/pump.yaml.example" ||
	fail "a changed example was overwritten"
calls=$(called)
case $calls in
*"daemon-reload
--no-block try-restart $units"*) ;;
*) fail "the upgrade calls: $calls" ;;
esac
case $calls in *stop*) fail "the upgrade stops instances: $calls" ;; esac

echo "== remove"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants" \
	"$root/etc/systemd/system/queuepump-processor@a.service.d"
ln -s /usr/lib/systemd/system/queuepump-processor@.service \
	"$root/etc/systemd/system/multi-user.target.wants/queuepump-processor@a.service"
echo "[Service]" >"$root/etc/systemd/system/queuepump-processor@a.service.d/override.conf"
remove
[ ! -e "$root/usr/bin/processor" ] || fail "a binary is left"
grep -q kept "$root/etc/queuepump/pump.yaml" || fail "the configuration is gone"
[ -e "$root/etc/queuepump/a.env" ] || fail "an instance's file is gone"
calls=$(called)
case $calls in "stop $units"*"daemon-reload"*) ;; *) fail "the removal calls: $calls" ;; esac

echo "== purge"
case $format in
deb) in_root dpkg -P queuepump ;;
rpm)
	[ -e "$root/etc/queuepump/pump.yaml.example.rpmsave" ] || fail "a changed example is gone"
	[ ! -L "$root/etc/systemd/system/multi-user.target.wants/queuepump-processor@a.service" ] ||
		fail "an instance is still enabled"
	# RPM knows no purge: docs/service.md has these commands.
	in_root rm -rf /etc/queuepump /var/lib/queuepump \
		/etc/systemd/system/queuepump-processor@a.service.d
	in_root userdel queuepump
	;;
esac
left=$(cd "$base/upper" && find . -name '*queuepump*' ! -type c)
[ -z "$left" ] || fail "left are $left"
for file in passwd group shadow gshadow; do
	! grep -q queuepump "$root/etc/$file" || fail "the user is left in $file"
done
echo "all is as it was"
