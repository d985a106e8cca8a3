package azsim

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// PartitionLoad is the load of one partition of a table by the admitted requests: entities written,
// and entities that queries looked at.
type PartitionLoad struct {
	Account   string
	Table     string // in small letters
	Partition string // its key
	Entities  int64  // since the Sim was made
	Peak      int64  // the most in one second, as package time cuts them
	PeakAt    time.Time
}

// PartitionLoads returns the loads of all partitions, the highest peak first;
// none unless Config.CountPartitions says so.
func (s *Sim) PartitionLoads() []PartitionLoad {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	all := make([]PartitionLoad, 0, len(s.loads.of))
	for _, l := range s.loads.of {
		all = append(all, l.PartitionLoad)
	}
	slices.SortFunc(all, func(a, b PartitionLoad) int {
		return cmp.Or(cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Account, b.Account),
			cmp.Compare(a.Table, b.Table), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// loads are the loads of all partitions that were ever asked.
type loads struct {
	mu sync.Mutex
	of map[loadKey]*load // guarded by mu
}

type loadKey struct{ account, partition string } // partition: as partitionName has it

type load struct {
	PartitionLoad
	second int64 // Unix seconds
	within int64 // entities of that second
}

// add counts what an operation asked of its partitions.
func (l *loads) add(account string, op *operation, rep *reply) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	own := int64(max(op.cost, 1))
	for _, q := range rep.looked {
		name := partitionName(op.object, q.partition)
		if name == op.partition {
			own = 0
		}
		l.count(account, name, int64(q.n), now)
	}
	if op.partition != "" && own > 0 {
		l.count(account, op.partition, own, now)
	}
}

func (l *loads) count(account, partition string, n int64, now time.Time) {
	if l.of == nil {
		l.of = make(map[loadKey]*load)
	}
	k := loadKey{account, partition}
	p := l.of[k]
	if p == nil {
		table, key, _ := strings.Cut(partition, "\x00")
		p = &load{PartitionLoad: PartitionLoad{Account: account, Table: table, Partition: key}}
		l.of[k] = p
	}
	if second := now.Unix(); second != p.second {
		p.second, p.within = second, 0
	}
	p.Entities += n
	p.within += n
	if p.within > p.Peak {
		p.Peak, p.PeakAt = p.within, now
	}
}
