package handlers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// modeVariable makes this test binary a child with the behaviour it names.
const modeVariable = "HANDLERS_TEST_MODE"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(modeVariable); mode {
	case "":
		os.Exit(m.Run())
	case "each":
		each()
	default:
		longLived(mode)
	}
}

// request is what a child reads.
type request struct {
	Seq     uint64
	Left    int
	N       uint64
	Key     string
	Attempt int
	Body    json.RawMessage
}

// longLived is a child of Exec. In mode "batch" it begins with a batch when it has all of it, and with
// its last task. The body of a task, a JSON string, says what to do with it.
func longLived(mode string) {
	in := bufio.NewReader(os.Stdin)
	var batch []string
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if mode == "grandchild" {
				continue
			}
			os.Exit(0)
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			panic(err)
		}
		batch = append(batch, string(line))
		if mode == "batch" && r.Left > 0 {
			continue
		}
		for _, line := range slices.Backward(batch) {
			do(line)
		}
		batch = nil
	}
}

// do is what a child does with a line.
func do(line string) {
	var r request
	_ = json.Unmarshal([]byte(line), &r)
	var do string
	_ = json.Unmarshal(r.Body, &do)
	switch do {
	case "die":
		fmt.Fprintln(os.Stderr, "cannot go on")
		os.Exit(7)
	case "shell":
		shell()
		fmt.Printf(`{"seq":%d,"ok":true}`+"\n", r.Seq)
	case "hang":
		_ = os.WriteFile(os.Getenv("HANGS"), nil, 0o600)
		time.Sleep(time.Hour)
	case "garbage":
		fmt.Println("hello")
	case "endless":
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	case "wrong seq":
		fmt.Printf(`{"seq":%d,"ok":true}`+"\n", r.Seq+1)
	case "twice":
		fmt.Printf(`{"seq":%d,"ok":true}`+"\n"+`{"seq":%d,"ok":true}`+"\n", r.Seq, r.Seq)
	case "env":
		b, _ := json.Marshal(os.Environ())
		fmt.Printf(`{"seq":%d,"ok":true,"result":%s}`+"\n", r.Seq, b)
	case "odd":
		fmt.Printf(`{"seq":%d,"retry":"soon"}`+"\n", r.Seq)
	case "pid":
		fmt.Printf(`{"seq":%d,"ok":true,"result":%d}`+"\n", r.Seq, os.Getpid())
	case "pid and end":
		fmt.Printf(`{"seq":%d,"ok":true,"result":%d}`+"\n", r.Seq, os.Getpid())
		os.Exit(0)
	default:
		if len(line) > maxAnswer {
			line = fmt.Sprintf("[%d,%d]", len(do), len(r.Key))
		}
		fmt.Printf(`{"seq":%d,"ok":true,"result":%s}`+"\n", r.Seq, strings.TrimSpace(line))
	}
}

// shell starts a shell below us that ends for nothing but SIGKILL, so that only ending the whole
// group ends all. It has said its pid when shell returns.
func shell() {
	file := os.Getenv("PIDFILE")
	c := exec.Command("sh", "-c", `trap "" TERM; echo $$ >"$PIDFILE"; while :; do sleep 1; done`)
	if err := c.Start(); err != nil {
		panic(err)
	}
	for {
		if text, err := os.ReadFile(file); err == nil && bytes.HasSuffix(text, []byte("\n")) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// each is a process of ExecEach.
func each() {
	var b strings.Builder
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		b.WriteString(s.Text())
	}
	var status int
	switch {
	case b.String() == "environment":
		for _, pair := range os.Environ() {
			if strings.HasPrefix(pair, "QUEUEPUMP_TASK_") {
				fmt.Println(pair)
			}
		}
	case b.String() == "traced":
		fmt.Print(os.Getenv("TRACEPARENT"), "|", os.Getenv("TRACESTATE"))
	case b.String() == "hang":
		time.Sleep(time.Hour)
	default:
		if n, _ := fmt.Sscanf(b.String(), "exit %d", &status); n == 1 {
			fmt.Fprintln(os.Stderr, "going")
			os.Exit(status)
		}
		fmt.Print(b.String())
	}
	os.Exit(0)
}

// command is the options for children of this test binary in a mode. Their time is not over but
// where a test says so, however slow the machine is.
func command(mode string, env ...string) CommandOptions {
	return CommandOptions{
		Argv: []string{os.Args[0]}, Env: append(append(os.Environ(), modeVariable+"="+mode), env...),
		Children: 1, Timeout: 10 * time.Minute,
	}
}

func task(body string) *pump.Task {
	return &pump.Task{Run: pump.RunID{0xab}, Segment: 5, N: 17, Key: []byte("Oslo"), ID: "a1", Body: []byte(body), Attempt: 2, Epoch: 1 << 60}
}

// sameError compares what the errors ask for, with their texts.
func sameError(t *testing.T, got, want error) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v (%v), want %#v (%v)", got, got, want, want)
	}
}
