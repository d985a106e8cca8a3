package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestWrongFlagsAreStatusTwo(t *testing.T) {
	for _, args := range []string{"--acounts 3", "--accounts 0", "--listen here", "--fault nothing", "now", "--limits x"} {
		var problems strings.Builder
		status := run(t.Context(), strings.Fields(args), io.Discard, &problems)
		proof.Same(t, status, 2, args)
		proof.Has(t, problems.String(), "--help", args)
	}
	var out strings.Builder
	if status := run(t.Context(), []string{"--help"}, &out, io.Discard); status != 0 || !strings.Contains(out.String(), "lost-answer") {
		t.Errorf("--help: %d", status)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proof.Must(t, err)
	defer l.Close()
	var problems strings.Builder
	_, port, _ := net.SplitHostPort(l.Addr().String())
	proof.Same(t, run(t.Context(), []string{"--queue-port", port}, io.Discard, &problems), 1, "a port that is taken")
	proof.Says(t, errors.New(problems.String()), "azsim: queue service: ", "give other ports")
	taken := filepath.Join(t.TempDir(), "none", "pump.yaml")
	proof.Same(t, run(t.Context(), []string{"--write-config", taken}, io.Discard, io.Discard), 1,
		"--write-config into nothing")
}

// TestOtherMachinesReachTheAccounts has a client ask by a name that is not of loopback, as one does
// from another container.
func TestOtherMachinesReachTheAccounts(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	config := filepath.Join(t.TempDir(), "pump.yaml")
	read, write := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"--accounts", "1", "--listen", "0.0.0.0", "--write-config", config}, write, io.Discard)
		write.Close()
	}()
	var said strings.Builder
	for b := make([]byte, 4096); !strings.Contains(said.String(), "serving until"); {
		n, err := read.Read(b)
		if err != nil {
			t.Fatal(err, said.String())
		}
		said.Write(b[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, read) }()
	admin := regexp.MustCompile(`(?m)^admin +http://\S+:(\d+)`).FindStringSubmatch(said.String())[1]
	ask := func(path string) (text []byte) {
		r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+admin+path, nil)
		proof.Must(t, err)
		r.Host = "azsim.test:" + admin
		answer, err := http.DefaultClient.Do(r)
		proof.Must(t, err)
		defer answer.Body.Close()
		if text, err = io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s, %v", path, answer.Status, text, err)
		}
		return text
	}
	ask("/healthz")
	var got struct {
		Accounts []struct{ ConnectionString string }
	}
	if err := json.Unmarshal(ask("/accounts"), &got); err != nil || len(got.Accounts) != 1 {
		t.Fatal(err, got)
	}
	connection := got.Accounts[0].ConnectionString
	proof.Same(t, strings.Count(connection, "http://azsim.test:"), 3, connection)
	c, err := azqueue.NewServiceClientFromConnectionString(strings.ReplaceAll(connection, "azsim.test", "127.0.0.1"), nil)
	proof.Must(t, err)
	proof.Is(t, proof.ErrOf(c.CreateQueue(t.Context(), "work", nil)), nil)
	if text, err := os.ReadFile(config); err != nil || !strings.Contains(string(text), "QueueEndpoint=http://127.0.0.1:") {
		t.Errorf("%s %v", text, err)
	}
	stop()
	proof.Same(t, <-ended, 0, "status")
}
