package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// accounts are simulated ones, which loadtest serves beside the container.
type accounts struct {
	server *exec.Cmd
	admin  string
	lines  []string // of pump.yaml, an account each
}

func serve(o options, n int) (*accounts, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	a := &accounts{admin: "http://127.0.0.1:" + port}
	log, err := os.Create(filepath.Join(o.out, "accounts.txt"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.server = exec.Command(o.loadtest, "serve", "--accounts", fmt.Sprint(n), "--admin-port", port)
	a.server.Stdout, a.server.Stderr = log, log
	a.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.server.Start(); err != nil {
		return nil, err
	}
	var answer struct {
		Accounts []struct{ Name, ConnectionString string }
	}
	err = within(20*time.Second, "loadtest serves accounts", func() (bool, error) {
		text, err := get(a.admin + "/accounts")
		return err == nil && json.Unmarshal(text, &answer) == nil && len(answer.Accounts) == n, nil
	})
	for _, one := range answer.Accounts {
		a.lines = append(a.lines, "  - connectionString: "+one.ConnectionString+"\n    queues: 4\n")
	}
	return a, err
}

// config is a pump.yaml with the first n accounts.
func (a *accounts) config(n int) string {
	return "workload: demo\ndelivery: once\naccounts:\n" + strings.Join(a.lines[:n], "")
}

// puts are the messages that an account took.
func (a *accounts) puts(name string) (n int, err error) {
	text, err := get(a.admin + "/counts")
	if err != nil {
		return 0, err
	}
	var counts struct {
		Requests []struct {
			Account, Operation string
			Status, Count      int
		}
	}
	if err := json.Unmarshal(text, &counts); err != nil {
		return 0, err
	}
	for _, r := range counts.Requests {
		if r.Account == name && r.Operation == "PutMessage" && r.Status == http.StatusCreated {
			n += r.Count
		}
	}
	return n, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, answer.Body); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, answer.Status, text.String())
	}
	return text.Bytes(), nil
}

// within asks again and again until it is so.
func within(most time.Duration, what string, so func() (bool, error)) error {
	for deadline := time.Now().Add(most); ; time.Sleep(100 * time.Millisecond) {
		if done, err := so(); err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %s", most, what)
		}
	}
}
