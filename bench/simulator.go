package bench

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// simulated says what the simulator in its own process serves, without limits.
type simulated struct {
	Accounts int           `json:"accounts"`
	Latency  time.Duration `json:"latency"` // of each request, as the network and the service have
	Secure   bool          `json:"secure"`  // over TLS, as Azure does
}

// served is what it has to say: where it is, and what it has served since it began.
type served struct {
	ConnectionStrings []string         `json:"connectionStrings"`
	Certificate       []byte           `json:"certificate"` // PEM; empty without TLS
	Requests          map[string]int64 `json:"requests"`    // by operation
	Connections       int64            `json:"connections"`
	CPUSeconds        float64          `json:"cpuSeconds"`
}

// simulate is the role of the simulator: the first value that it reads says what to
// serve, every other one is answered with what was served; it ends with its input.
func simulate(_ context.Context, in io.Reader, out io.Writer) error {
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	var what simulated
	if err := questions.Decode(&what); err != nil {
		return err
	}
	s, err := newServing(what)
	if err != nil {
		return err
	}
	defer s.close()
	for {
		if err := answers.Encode(s.state()); err != nil {
			return err
		}
		var again struct{}
		if err := questions.Decode(&again); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// serving is a simulator that listens, and counts the connections that are made to it.
type serving struct {
	sim               *azsim.Sim
	connectionStrings []string
	certificate       []byte
	connections       atomic.Int64
	servers           []*http.Server
	done              sync.WaitGroup
}

func newServing(what simulated) (*serving, error) {
	s := &serving{sim: azsim.New(azsim.Config{Accounts: simulatedAccounts(what.Accounts), Limits: azsim.NoLimits(), Latency: what.Latency})}
	var secured *tls.Config
	if what.Secure {
		var err error
		if secured, s.certificate, err = newIdentity(); err != nil {
			return nil, err
		}
	}
	var addresses []string
	for _, h := range []http.Handler{s.sim.QueueHandler(), s.sim.TableHandler()} {
		address, err := s.listen(h, secured)
		if err != nil {
			s.close()
			return nil, err
		}
		addresses = append(addresses, address)
	}
	scheme := "http"
	if what.Secure {
		scheme = "https"
	}
	for _, name := range s.sim.Accounts() {
		s.connectionStrings = append(s.connectionStrings, fmt.Sprintf(
			"DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;QueueEndpoint=%[1]s://%[4]s/%[2]s;TableEndpoint=%[1]s://%[5]s/%[2]s",
			scheme, name, s.sim.Key(name), addresses[0], addresses[1]))
	}
	return s, nil
}

func (s *serving) listen(h http.Handler, secured *tls.Config) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	if secured != nil {
		l = tls.NewListener(l, secured)
	}
	hs := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}}
	s.servers = append(s.servers, hs)
	s.done.Go(func() { _ = hs.Serve(l) }) // ends with ErrServerClosed
	return address, nil
}

func (s *serving) close() {
	for _, hs := range s.servers {
		_ = hs.Close()
	}
	s.done.Wait()
}

func (s *serving) state() served {
	return served{ConnectionStrings: s.connectionStrings, Certificate: s.certificate, Requests: operations(s.sim.Stats()), Connections: s.connections.Load(), CPUSeconds: processCPU()}
}

// newIdentity is a certificate for loopback and the configuration that serves with it.
// As with Azure: an RSA key of 2,048 bits, no HTTP/2, and curves that every
// Windows server has. (Go on both sides would agree on a post-quantum exchange, which
// costs the client more.)
func newIdentity() (*tls.Config, []byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{
		Certificates:     []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:       []string{"http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
		MinVersion:       tls.VersionTLS12,
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
