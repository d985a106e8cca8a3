package codec

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

// testHeader is an identity with something in every field.
func testHeader() Header {
	run, err := ParseRunID("000102030405060708090a0b0c0d0e0f")
	if err != nil {
		panic(err)
	}
	return Header{Workload: "orders", Run: run, Segment: 42, Attempt: 1, Generation: 2, MapVersion: 3}
}

// jsonTasks are n tasks of 131 bytes of JSON with the entropy of real ones: ids,
// amounts, times and hexadecimal tokens that differ, names and cities that repeat.
func jsonTasks(seed uint64, n int) []Task {
	r := rand.New(rand.NewPCG(seed, 1))
	cities := []string{"Berlin", "Hamburg", "Paris", "London", "Oslo", "Madrid", "Roma", "Wien", "Praha", "Lisboa"}
	tasks := make([]Task, n)
	for i := range tasks {
		token := make([]byte, 32)
		for k := range token {
			token[k] = byte(r.Uint32())
		}
		city := cities[r.IntN(len(cities))]
		body := fmt.Sprintf(`{"id":%d,"city":%q,"user":"u%06d","cents":%d,"at":"2026-07-%02dT%02d:%02d:%02dZ","token":"`,
			i, city, r.IntN(1_000_000), r.IntN(100_000), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
		body = (body + hex.EncodeToString(token))[:129] + `"}`
		tasks[i] = Task{N: uint64(i), Key: []byte(city), Body: []byte(body)}
	}
	return tasks
}

// fill adds tasks until one does not fit or there is none left and returns how
// many are in.
func fill(t testing.TB, b *Builder, tasks []Task) int {
	t.Helper()
	for i, task := range tasks {
		fits, err := b.Add(task)
		if err != nil {
			t.Fatalf("Add of task %d: %v", task.N, err)
		}
		if !fits {
			return i
		}
	}
	return len(tasks)
}

// seal makes one envelope of all of tasks.
func seal(t testing.TB, h Header, tasks []Task) []byte {
	t.Helper()
	b := NewBuilder(0)
	b.Reset(h)
	if n := fill(t, b, tasks); n != len(tasks) {
		t.Fatalf("only %d of %d tasks fit", n, len(tasks))
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	return text
}

func open(t testing.TB, text []byte) *Envelope {
	t.Helper()
	e, err := Open(text, Limits{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// sameTasks fails the test unless got holds what want does.
func sameTasks(t testing.TB, got, want []Task) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d tasks, want %d", len(got), len(want))
	}
	for i := range got {
		if !sameTask(got[i], want[i]) {
			t.Fatalf("task %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func sameTask(a, b Task) bool {
	return a.N == b.N && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.ID, b.ID) && bytes.Equal(a.Body, b.Body) && bytes.Equal(a.Trace, b.Trace)
}

func TestAFullEnvelopeOpensToTheSameTasks(t *testing.T) {
	tasks := jsonTasks(1, 5000)
	b := NewBuilder(0)
	b.Reset(testHeader())
	n := fill(t, b, tasks)
	if n < 400 || n == len(tasks) {
		t.Fatalf("%d tasks of 131 bytes in an envelope, want at least 400 and a full one", n)
	}
	text, h, err := b.Seal(nil)
	must(t, err)
	t.Logf("%d tasks, %d of %d characters, %d raw bytes in %d chunks", n, len(text), maxText-DefaultHeadroom, h.RawLen, b.estimates)
	e := open(t, text)
	defer e.Release()
	sameTasks(t, e.Tasks, tasks[:n])
}
