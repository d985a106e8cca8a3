package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
)

// While a certificate is renewed its key may be another's for a moment: connections go on with the
// pair before it, and the log says so.
func TestACertificateThatCannotBeReadLeavesTheOneBeforeIt(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "pem"), &strings.Builder{}
	f := &serveFlags{tlsCert: path, tlsKey: path}
	f.http.Listen, f.http.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil))
	write := func(serial int64) {
		public, key, err := ed25519.GenerateKey(nil)
		must(t, err)
		of := &x509.Certificate{SerialNumber: big.NewInt(serial)}
		cert, err := x509.CreateCertificate(nil, of, of, public, key)
		must(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
		must(t, os.WriteFile(path, text, 0o600))
	}
	serves := func(want int64) {
		t.Helper()
		pair, err := f.http.TLS.GetCertificate(nil)
		must(t, err)
		proof.Same(t, pair.Leaf.SerialNumber.Int64(), want)
	}
	write(1)
	must(t, f.access(&configfile.File{}))
	serves(1)
	must(t, os.WriteFile(path, nil, 0o600))
	serves(1)
	serves(1)
	proof.Same(t, strings.Count(log.String(), "tls-cert"), 1)
	write(2)
	serves(2)
}
