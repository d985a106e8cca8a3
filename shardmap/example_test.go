package shardmap_test

import (
	"fmt"
	"log"

	"github.com/queuepump/queuepump/shardmap"
)

// In which queue the tasks of a key are.
func ExampleMap_Home() {
	m, err := shardmap.New(64, []shardmap.Shard{
		{Account: "one", Queue: "orders-00", Weight: 1, State: shardmap.Active},
		{Account: "two", Queue: "orders-00", Weight: 1, State: shardmap.Active},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"Oslo", "Bern", "Riga"} {
		segment := shardmap.Segment([]byte(key), m.Segments)
		home := m.Shards[m.Home(segment)]
		fmt.Println(key, "has segment", segment, "in account", home.Account)
	}
	// Output:
	// Oslo has segment 8 in account one
	// Bern has segment 52 in account two
	// Riga has segment 27 in account one
}

// Which process owns which segments, when a third one comes.
func ExampleMap_Plan() {
	m, err := shardmap.New(64, []shardmap.Shard{
		{Account: "one", Queue: "orders-00", Weight: 1, State: shardmap.Active},
	})
	if err != nil {
		log.Fatal(err)
	}
	two := m.Plan([]string{"a", "b"}, nil, nil)
	instances, counts := []string{"a", "b", "c"}, map[string]int{}
	for segment, owner := range m.Plan(instances, two, nil) {
		counts[instances[two[segment]]+" to "+instances[owner]]++
	}
	fmt.Println(counts)
	// Output:
	// map[a to a:22 a to c:10 b to b:21 b to c:11]
}
