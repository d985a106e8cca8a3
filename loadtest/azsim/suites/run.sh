#!/bin/sh
# Runs the live tests of azqueue and aztables, and clients.mjs, on azsim behind another network, and
# measures it: run.sh AZSIM NODE_MODULES LOGS. excluded.txt has what need not pass, and why.
set -eu
for tool in ip openssl curl node; do
	command -v $tool >/dev/null || { echo "suites: install $tool (ip is in iproute2)"; exit 1; }
done
azsim=$(realpath "$1") modules=$(realpath "$2") here=$(dirname "$(realpath "$0")")
mkdir -p "$3" && logs=$(realpath "$3") tmp=$(mktemp -d) net=azsim-suites served=
trap 'for p in $served; do kill "$p"; done; ip netns delete $net; rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
ip netns delete $net 2>/dev/null || true # of a run that was killed
ip netns add $net
ip link add azsim-suites type veth peer name eth0 netns $net
ip addr add 10.254.31.1/29 dev azsim-suites
ip link set azsim-suites up
for address in 10.254.31.2 10.254.31.3; do ip -n $net addr add $address/29 dev eth0; done
ip -n $net link set eth0 up

cd "$tmp"
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -subj /CN=azsim -addext \
	'subjectAltName=DNS:*.queue.core.windows.net,DNS:*.table.core.windows.net,IP:10.254.31.2' 2>/dev/null
cp /etc/hosts hosts
serve() { # service, address
	begun=$(date +%s%N)
	ip netns exec $net "$azsim" --listen "$2" --tls-cert cert --tls-key key "--$1-port" 443 --admin-port 80 \
		>"$logs/azsim-$1.log" &
	last=$!
	until curl -sf "http://$2/healthz" >/dev/null; do :; done
	echo $((($(date +%s%N) - begun) / 1000000)) >>up
	echo "$2 simulated1.$1.core.windows.net simulated1-secondary.$1.core.windows.net" >>hosts
}
for _ in 1 2 3 4 5 6 7 8 9; do
	serve table 10.254.31.3
	kill $last && wait $last || true
done
serve table 10.254.31.3 && served=$last
serve queue 10.254.31.2 && served="$served $last"
# The tests take their tokens from the command az.
printf '#!/bin/sh\necho "{\\"accessToken\\": \\"any\\", \\"expires_on\\": 4102444800}"\n' >az
chmod +x az
set -a # all that follows is in the environment
CONNECTION=$(curl -s http://10.254.31.2/accounts | sed -n '/Account/{s/.*"\(Default.*\)".*/\1/p;q}')
AZURE_STORAGE_ACCOUNT_KEY=$(echo "$CONNECTION" | sed 's/.*AccountKey=\([^;]*\);.*/\1/')
TABLES_PRIMARY_STORAGE_ACCOUNT_KEY=$AZURE_STORAGE_ACCOUNT_KEY TABLES_COSMOS_ACCOUNT_NAME=none
AZURE_STORAGE_ACCOUNT_NAME=simulated1 TABLES_STORAGE_ACCOUNT_NAME=simulated1 PROXY_MANUAL_START=true
AZURE_TOKEN_CREDENTIALS=AzureCLICredential AZURE_RECORD_MODE=live NODE_EXTRA_CA_CERTS=$tmp/cert
suite() { # name, module; what asks Cosmos DB is of another service
	cp -r "$(cd "$here" && go list -m -f '{{.Dir}}' "github.com/Azure/azure-sdk-for-go/sdk/$2")" "$1"
	chmod -R u+w "$1"
	(cd "$1" && GOFLAGS= go test -c -o suite .)
	unshare -m sh -c "mount --bind hosts /etc/hosts && cd $1 && PATH=$tmp:\$PATH \
		SSL_CERT_FILE=../cert ./suite -test.v -test.skip 'Cosmos|/_cosmos'" >"$logs/$1.log" 2>&1 || true
	sed -n "s/^ *--- \([A-Z]*\): \([^ ]*\) .*/$1 \2 \1/p" "$logs/$1.log" >"$1.results"
}
echo "aztables sleeps for most of its five minutes"
suite aztables data/aztables & tables=$!
suite azqueue storage/azqueue/v2 & queues=$!
ln -s "$modules" node_modules
cp "$here/clients.mjs" .
node --test --test-reporter=tap clients.mjs >"$logs/clients.log" 2>&1 || true
wait $queues $tables
awk '/^(not )?ok/ { print $(NF-1), $NF, /^ok/ ? "PASS" : "FAIL" }' "$logs/clients.log" >clients.results
cat ./*.results | awk -f "$here/judge.awk" "$here/excluded.txt" -
held=$(awk '/^VmHWM/ { print $2 }' "/proc/$last/status") up=$(sort -n up | sed -n 6p)
read -r load _ </proc/loadavg # which is in the first figure
echo "up within $up ms (median of 11, load $load); $held KiB with 100,000 messages of 100 bytes"
[ "$up" -le 100 ] && [ "$held" -le 65536 ] || { echo "suites: 100 ms, 64 MiB at most"; exit 1; }
