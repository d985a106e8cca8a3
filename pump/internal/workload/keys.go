package workload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// A post with a key has a row before its first put. The row names the run and the numbers of the
// post's tasks, so a repeat of the post, by any process, puts the same tasks.

const (
	// KeyParts is how many partitions the keys of posts are spread over: a partition takes 2,000 rows a
	// second.
	KeyParts = 8
	// keysBytes bounds the rows of one transaction, which the service does at 4 MiB.
	keysBytes = 3 << 20
	// keysLooked is how many rows are read at once if keys were known.
	keysLooked = 16
)

// KeysPartition is one of the [KeyParts] partitions with the keys of posts of a workload.
func KeysPartition(workload string, part int) string {
	return fmt.Sprintf("%s.keys.%x", workload, part)
}

// Posted is what the row of a key says.
type Posted struct {
	// Key is the key of the row: a hash of the user's key.
	Key string
	// Print is a hash of the tasks.
	Print []byte
	Run   codec.RunID
	// Firsts are the numbers of the first task of each segment, in the order in which the segments
	// first come in the post. The other tasks of a segment have the numbers behind it.
	Firsts []uint64
	// Seats are the segments of tasks without keys, so many tasks for each; nil: they have keys.
	Seats []uint64
	// Keep is how long the row is kept.
	Keep time.Duration
}

// KeyOf is the key of the row of a user's key.
func KeyOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// part is the partition of a key.
func (p *Posted) part() int {
	digit, _ := hex.DecodeString(p.Key[:2])
	return int(digit[0]) % KeyParts
}

func (p *Posted) same(as *Posted) bool {
	return p.Run == as.Run && bytes.Equal(p.Print, as.Print) && slices.Equal(p.Firsts, as.Firsts) &&
		slices.Equal(p.Seats, as.Seats)
}

// insert is the write of the row.
func (p *Posted) insert(workload string) storage.Write {
	props := map[string]any{
		row.FormatProperty: int64(row.Format), "Print": p.Print, "Run": p.Run.String(),
		"Keep": int64(p.Keep),
	}
	row.PutParts(props, "Firsts", sealedPart, appendCounts(nil, p.Firsts))
	if p.Seats != nil {
		props["Seats"] = appendCounts(nil, p.Seats)
	}
	return storage.Write{Mode: storage.Insert, Entity: storage.Entity{
		Partition: KeysPartition(workload, p.part()), Row: p.Key, Properties: props,
	}}
}

func readPosted(f *row.Fields) Posted {
	p := Posted{Print: f.Binary("Print"), Run: f.Run("Run"), Keep: f.Duration("Keep")}
	var err error
	if p.Firsts, err = readCounts(f.Parts("Firsts", sealedParts)); err != nil {
		f.Fail("Firsts", err.Error())
	}
	if stored := f.Binary("Seats"); stored != nil {
		if p.Seats, err = readCounts(stored); err != nil {
			f.Fail("Seats", err.Error())
		}
	}
	return p
}

// DividePosted divides posts into those whose rows are written in one transaction each.
func DividePosted(posts []*Posted) (divided [][]*Posted) {
	var parts [KeyParts][]*Posted
	var bytes [KeyParts]int
	for _, p := range posts {
		i, size := p.part(), 1<<10+10*len(p.Firsts)
		if len(parts[i]) == storage.MaxBatch || bytes[i]+size > keysBytes {
			divided, parts[i], bytes[i] = append(divided, parts[i]), nil, 0
		}
		parts[i], bytes[i] = append(parts[i], p), bytes[i]+size
	}
	for _, posts := range parts {
		if len(posts) > 0 {
			divided = append(divided, posts)
		}
	}
	return divided
}

// InsertPosted writes the rows of posts of one partition, all in one transaction. Known are the rows
// of keys that others had written before; the posts of these have none of their own. After an error
// it is not known which rows are written.
func InsertPosted(
	ctx context.Context, t storage.Table, workload string, posts []*Posted,
) (known map[string]Posted, err error) {
	known = map[string]Posted{}
	for {
		var writes []storage.Write
		for _, p := range posts {
			if _, is := known[p.Key]; !is {
				writes = append(writes, p.insert(workload))
			}
		}
		if len(writes) == 0 {
			return known, nil
		}
		partition := writes[0].Entity.Partition
		err := row.Insist(ctx, t, partition, func(ctx context.Context) error {
			_, err := t.Transact(ctx, writes)
			return err
		})
		if !storage.Is(err, storage.Exists) {
			return known, err
		}
		// All rows of a transaction are written or none. The transaction that was refused may be one
		// that an earlier attempt made.
		if ours, err := lookPosted(ctx, t, workload, posts, known); ours || err != nil {
			return known, err
		}
	}
}

// lookPosted reads the rows of posts that are not known, adds those of others, and says whether the
// posts' own are there.
func lookPosted(
	ctx context.Context, t storage.Table, workload string, posts []*Posted, known map[string]Posted,
) (ours bool, err error) {
	var g errgroup.Group
	g.SetLimit(keysLooked)
	var mu sync.Mutex
	for _, p := range posts {
		if _, is := known[p.Key]; is {
			continue
		}
		g.Go(func() error {
			found, err := readKey(ctx, t, workload, p)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || found == nil:
			case p.same(found):
				ours = true
			default:
				known[p.Key] = *found
			}
			return err
		})
	}
	return ours, g.Wait()
}

// readKey reads the row of a post's key; nil: there is none.
func readKey(
	ctx context.Context, t storage.Table, workload string, p *Posted,
) (found *Posted, err error) {
	partition := KeysPartition(workload, p.part())
	err = row.Insist(ctx, t, partition, func(ctx context.Context) error {
		e, err := t.Read(ctx, partition, p.Key)
		if storage.Is(err, storage.Gone) {
			return nil
		}
		if err != nil {
			return err
		}
		f := &row.Fields{Props: e.Properties}
		read := row.ReadFormat(f, readPosted)
		if f.Err != nil {
			return row.Damaged(t, partition, p.Key, f.Err)
		}
		read.Key = p.Key
		found = &read
		return nil
	})
	return found, err
}
