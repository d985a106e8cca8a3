package configfile

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestASecretIsTakenFromItsFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	write(t, filepath.Join(dir, "alpha"), connection+"\n")
	elsewhere := filepath.Join(t.TempDir(), "sas")
	write(t, elsewhere, "sv=1&sig=c2lnbmF0dXJlLW9mLWJldGEtMTIz\r\n")
	f, err := parse("pump.yaml", []byte(`
workload: demo
accounts:
  - connectionString: ${file:alpha}
  - endpoint: "https://beta.queue.core.windows.net?${file:`+elsewhere+`}"
`), environment())
	must(t, err)
	if a := f.Config.Accounts; a[0].ConnectionString != connection || a[1].Endpoint != "https://beta.queue.core.windows.net?sv=1&sig=c2lnbmF0dXJlLW9mLWJldGEtMTIz" {
		t.Errorf("got %+v", a)
	}
	if len(f.Variables) > 0 || len(f.Secrets()) != 2 {
		t.Errorf("variables %q, %d secrets", f.Variables, len(f.Secrets()))
	}
	for name, text := range map[string]string{"empty": "\n", "lines": "hunter2\nhunter3\n", "large": strings.Repeat("hunter2", 1<<13)} {
		write(t, filepath.Join(dir, name), text)
	}
	for name, want := range map[string]string{
		"missing": "cannot be opened", "empty": "is empty", "lines": "more than one line", "large": "is larger than 16 KiB", "": "names no file",
	} {
		_, err := parse("pump.yaml", []byte("workload: demo\naccounts:\n  - connectionString: ${file:"+name+"}\n"), environment())
		if err == nil || !strings.Contains(err.Error(), "pump.yaml:3: accounts[0].connectionString: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestSecretsAreFoundWhereverAnAccountHasThem(t *testing.T) {
	const key, sig, escaped = "c2VjcmV0LWtleS1vZi1hbHBoYQ==", "c2lnbmF0dXJl+b2YtYmV0YQ==", "c2lnbmF0dXJl%2Bb2YtYmV0YQ%3D%3D"
	for _, tt := range []struct {
		account pump.Account
		want    []string
	}{
		{pump.Account{ConnectionString: "AccountName=a;accountkey = " + key + " ;EndpointSuffix=x"}, []string{key}},
		{pump.Account{ConnectionString: "QueueEndpoint=https://a/;SharedAccessSignature=?sv=1&sig=" + escaped}, []string{escaped, sig}},
		{pump.Account{ConnectionString: "AccountKey=" + key + ";TableEndpoint=https://a/?sig=" + escaped + "&se=2"}, []string{key, escaped, sig}},
		{pump.Account{Endpoint: "https://a/?sig=" + escaped, TableEndpoint: "https://b?x=1&sig=" + key}, []string{escaped, sig, key}},
		{pump.Account{Endpoint: "https://a/?mysig=" + escaped, ConnectionString: "AccountKey=short;AccountName=" + key}, nil},
	} {
		f := File{Config: pump.Config{Accounts: []pump.Account{tt.account}}}
		proof.Alike(t, f.Secrets(), tt.want, tt.account)
	}
}

func TestAnAccountHasItsOwnIdentity(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	write(t, filepath.Join(dir, "secret"), "hunter2\n")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write(t, filepath.Join(dir, "client.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	load := func(accounts ...string) (*File, error) {
		text := "workload: demo\naccounts:\n"
		for _, a := range accounts {
			text += "  - " + a + "\n"
		}
		return parse("pump.yaml", []byte(text), environment())
	}
	const at = `endpoint: "https://alpha.queue.core.windows.net"`
	f, err := load(
		"{"+at+", identity: {client: system}}",
		"{"+at+", identity: {client: system}}",
		"{"+at+", identity: {client: 11111111-2222-3333-4444-555555555555}}",
		"{"+at+`, identity: {client: c, tenant: t.example, secret: "${file:secret}"}}`,
		"{"+at+", identity: {client: c, tenant: t.example, certificate: client.pem}}",
		"{"+at+"}",
	)
	must(t, err)
	a := f.Config.Accounts
	if a[0].Credential == nil || a[0].Credential != a[1].Credential || a[5].Credential != nil {
		t.Errorf("accounts of one identity do not share it: %+v", a)
	}
	for i := 1; i < 4; i++ {
		if a[i].Credential == nil || a[i+1].Credential == nil || a[i].Credential == a[i+1].Credential {
			t.Errorf("accounts %d and %d have one identity", i, i+1)
		}
	}
	again, err := load("{" + at + `, identity: {client: c, tenant: t.example, secret: "${file:secret}"}}`)
	must(t, err)
	proof.Same(t, again.Config.Accounts[0].Credential, a[3].Credential, "the same secret, read again")
	for account, want := range map[string]string{
		"{" + at + ", identity: {tenant: t.example}}":                                             "has no client",
		"{" + at + ", identity: {client: c, tenant: t.example}}":                                  "neither a managed identity nor a service principal",
		"{" + at + ", identity: {client: c, secret: hunter2}}":                                    "neither a managed identity nor a service principal",
		"{" + at + ", identity: {client: c, tenant: t, secret: hunter2, certificate: x}}":         "a secret and a certificate",
		"{" + at + ", identity: {client: c, tenant: t.example, certificate: none.pem}}":           "no such file",
		"{" + at + ", identity: {client: c, tenant: t.example, certificate: secret}}":             "holds no certificate and key",
		"{" + at + ", identity: {client: c, tenant: 'not one', secret: hunter2}}":                 "not one of Azure's",
		"{" + at + ", identity: system}":                                                          "identity",
		`{endpoint: "https://alpha.queue.core.windows.net?sig=x", identity: {client: system}}`:    "stands beside a key",
		`{connectionString: "AccountName=a;AccountKey=aHVudGVyMg==", identity: {client: system}}`: "stands beside a key",
	} {
		if _, err := load(account); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", account, err)
		}
	}
}

func TestOnlyThisMachineIsAskedForItsEvents(t *testing.T) {
	load := func(events string) (*File, error) {
		return parse("pump.yaml", []byte("workload: demo\naccounts:\n  - connectionString: x\nscheduledEvents: "+events+"\n"), environment())
	}
	for events, want := range map[string]string{
		"off": "", "azure": "http://169.254.169.254", "http://127.0.0.1:8080": "http://127.0.0.1:8080", "http://[::1]:80/": "http://[::1]:80/",
	} {
		if f, err := load(events); err != nil || f.Events != want {
			t.Errorf("%s: %v", events, err)
		}
	}
	for _, events := range []string{"on", "https://127.0.0.1", "http://10.0.0.1", "http://localhost", "http://127.0.0.1/x", "http://a@127.0.0.1"} {
		proof.Says(t, proof.ErrOf(load(events)), "pump.yaml:4: scheduledEvents: ", events)
	}
}
