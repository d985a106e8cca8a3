package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// latency is how long the simulator takes for each request, as the network and the service do.
const latency = 5 * time.Millisecond

// pumpAccounts is how many accounts the pump has. The rival and the way of a task a message have one.
const pumpAccounts = 4

// simulated says what the simulator in its own process serves, without limits.
type simulated struct {
	Accounts int
	Latency  time.Duration
}

// served is what it has to say: where it is, and what it has served since it began.
type served struct {
	ConnectionStrings []string
	Requests          map[string]int64 // by operation
	Connections       int64
}

// child is a simulator in a process of its own. Both talk in JSON values.
type child struct {
	tb  testing.TB
	in  *json.Encoder
	out *json.Decoder
}

// startSimulator starts a simulator, which serves until the test has ended.
func startSimulator(tb testing.TB, what simulated) (c *child, at served) {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	cmd := pinned(context.Background(), serverCore, self)
	cmd.Env, cmd.Stderr = append(cmd.Env, serves+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	must(tb, err)
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close() // upon which it ends
		proof.Is(tb, cmd.Wait(), nil, "the simulator")
	})
	c = &child{tb: tb, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	return c, c.ask(what)
}

// ask sends a value and reads what was served.
func (c *child) ask(question any) (at served) {
	c.tb.Helper()
	if err := errors.Join(c.in.Encode(question), c.out.Decode(&at)); err != nil {
		c.tb.Fatalf("the simulator does not answer: %v", err)
	}
	return at
}

// serve is what the simulator's process does: the first value that it reads says what to serve,
// every other one is answered with what was served; it ends with its input.
func serve(in io.Reader, out io.Writer) error {
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
	connections       atomic.Int64
	servers           []*http.Server
	done              sync.WaitGroup
}

func newServing(what simulated) (*serving, error) {
	config := azsim.Config{Limits: azsim.NoLimits(), Latency: what.Latency}
	for i := range what.Accounts {
		config.Accounts = append(config.Accounts, azsim.Account{Name: fmt.Sprintf("bench%02d", i)})
	}
	s := &serving{sim: azsim.New(config)}
	var addresses []string
	for _, h := range []http.Handler{s.sim.QueueHandler(), s.sim.TableHandler()} {
		address, err := s.listen(h)
		if err != nil {
			s.close()
			return nil, err
		}
		addresses = append(addresses, address)
	}
	for _, name := range s.sim.Accounts() {
		s.connectionStrings = append(s.connectionStrings, fmt.Sprintf(
			"DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;"+
				"QueueEndpoint=http://%[3]s/%[1]s;TableEndpoint=http://%[4]s/%[1]s",
			name, s.sim.Key(name), addresses[0], addresses[1]))
	}
	return s, nil
}

func (s *serving) listen(h http.Handler) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	count := func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	hs := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ConnState: count}
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
	at := served{s.connectionStrings, map[string]int64{}, s.connections.Load()}
	for _, r := range s.sim.Stats().Requests {
		at.Requests[r.Operation] += r.Count
	}
	return at
}
