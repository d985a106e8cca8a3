package storagetest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Azurite is a running Azurite: Microsoft's emulator, the second opinion on the
// wire beside the simulator. It has no limits and no faults, and differs from
// Azure in the ways that [AzuriteDifferences] lists.
type Azurite struct {
	queueURL, tableURL, blobURL string
	keys                        map[string]string
}

// azuriteStart bounds the start of the child; it takes about 2 s on an idle
// machine and many times that on a busy one.
const azuriteStart = 5 * time.Minute

// azuriteParent makes the child end in any case when the test binary ends: the pipe on its standard
// input closes.
const azuriteParent = `process.stdin.on("close", () => process.exit(0)).resume();
require(process.argv[1])`

// StartAzurite runs Azurite with the named accounts (one called "azurite" if none
// is named) on free ports of this machine and in memory, until the test ends. It
// needs Node and the packages that `make azurite` installs; without them the test
// fails, or is skipped in -short mode. If the test fails, it shows what Azurite
// wrote to its standard error.
func StartAzurite(t testing.TB, accounts ...string) *Azurite {
	t.Helper()
	if len(accounts) == 0 {
		accounts = []string{"azurite"}
	}
	main, err := azuriteMain()
	if err != nil {
		if testing.Short() {
			t.Skipf("no Azurite in -short mode: %v", err)
		}
		t.Fatalf("Azurite is not installed; run `make azurite` in the project's root: %v", err)
	}
	a := &Azurite{keys: map[string]string{}}
	var list []string
	for _, name := range accounts {
		sum := sha256.Sum256([]byte("azurite account " + name))
		a.keys[name] = base64.StdEncoding.EncodeToString(sum[:])
		list = append(list, name+":"+a.keys[name])
	}

	cmd := exec.Command("node", "-e", azuriteParent, main,
		"--inMemoryPersistence", "--disableTelemetry", "--silent")
	for _, of := range []string{"blob", "queue", "table"} {
		cmd.Args = append(cmd.Args, "--"+of+"Host", "127.0.0.1", "--"+of+"Port", "0")
	}
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+strings.Join(list, ";"), "NODE_NO_WARNINGS=1")
	stderr := &lockedBuffer{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting Azurite needs Node 20 or newer as `node`: %v", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		for range lines { // the pipe must be read to its end before Wait
		}
		cmd.Wait()
		if t.Failed() && stderr.String() != "" {
			t.Logf("Azurite's standard error:\n%s", stderr)
		}
	})
	timeout := time.After(azuriteStart)
	for a.queueURL == "" || a.tableURL == "" || a.blobURL == "" {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("Azurite ended while starting; its standard error:\n%s", stderr)
			}
			of := map[string]*string{"Queue": &a.queueURL, "Table": &a.tableURL, "Blob": &a.blobURL}
			said, url, _ := strings.Cut(line, " service is successfully listening at ")
			if at := of[strings.TrimPrefix(said, "Azurite ")]; at != nil {
				*at = strings.TrimSpace(url)
			}
		case <-timeout:
			t.Fatalf("Azurite did not start within %v; its standard error:\n%s", azuriteStart, stderr)
		}
	}
	go func() { // keep the pipe empty
		for range lines {
		}
	}()
	return a
}

// ConnectionString gives the connection string of an account that StartAzurite was given.
func (a *Azurite) ConnectionString(account string) string {
	key, ok := a.keys[account]
	if !ok {
		panic(fmt.Sprintf("storagetest: Azurite was not started with an account %q", account))
	}
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;"+
		"QueueEndpoint=%s/%s;TableEndpoint=%s/%s;BlobEndpoint=%s/%s;",
		account, key, a.queueURL, account, a.tableURL, account, a.blobURL, account)
}

// azuriteMain finds Azurite's main file, from the module's root down.
func azuriteMain() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			main := filepath.Join(dir, "pump", "storage", "storagetest", "azurite", "node_modules",
				"azurite", "dist", "src", "azurite.js")
			_, err := os.Stat(main)
			return main, err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
}

// lockedBuffer keeps the first 64 KiB written to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := 64<<10 - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
