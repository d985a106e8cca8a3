package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
}

// served is what it has to say: where it is, and what it has served since it began.
type served struct {
	ConnectionStrings []string         `json:"connectionStrings"`
	Requests          map[string]int64 `json:"requests"` // by operation
	Connections       int64            `json:"connections"`
}

// startSimulator starts a simulator in a process of its own, which serves until it is told to end.
func startSimulator(ctx context.Context, what simulated) (server *child, at served, err error) {
	if server, err = startChild(ctx, roleSimulator); err != nil {
		return nil, at, err
	}
	return server, at, server.ask(what, &at)
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
	connections       atomic.Int64
	servers           []*http.Server
	done              sync.WaitGroup
}

func newServing(what simulated) (*serving, error) {
	config := azsim.Config{
		Accounts: simulatedAccounts(what.Accounts), Limits: azsim.NoLimits(), Latency: what.Latency,
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
	return served{s.connectionStrings, operations(s.sim.Stats()), s.connections.Load()}
}
