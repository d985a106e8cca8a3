package codec_test

import (
	"fmt"

	"github.com/queuepump/queuepump/codec"
)

// Pack tasks into messages and unpack one of them.
func Example() {
	run, err := codec.ParseRunID("000102030405060708090a0b0c0d0e0f")
	if err != nil {
		panic(err)
	}
	b := codec.NewBuilder(0)
	b.Reset(codec.Header{Workload: "orders", Run: run, Segment: 42})
	for n, city := range []string{"Berlin", "Roma", "Praha"} {
		fits, err := b.Add(codec.Task{N: uint64(n), Key: []byte(city), Body: []byte("visit " + city)})
		if err != nil || !fits {
			panic("would be sealed and put here, and a new envelope begun")
		}
	}
	message, _, err := b.Seal(nil)
	if err != nil {
		panic(err)
	}

	h, err := codec.ReadHeader(message) // without unpacking
	if err != nil {
		panic(err)
	}
	fmt.Println("tasks", h.Tasks, "of segment", h.Segment)

	e, err := codec.Open(message, codec.Limits{})
	if err != nil {
		panic(err)
	}
	defer e.Release()
	for _, task := range e.Tasks {
		fmt.Printf("%d %s: %s\n", task.N, task.Key, task.Body)
	}
	// Output:
	// tasks 0-2 of segment 42
	// 0 Berlin: visit Berlin
	// 1 Roma: visit Roma
	// 2 Praha: visit Praha
}
