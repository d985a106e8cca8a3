package workload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// A post with a key has a row before its first put. The row names the run and the numbers of the
// post's tasks, so a repeat of the post, by any process, puts the same tasks.

const (
	// KeyParts is how many partitions the keys of posts are spread over: a partition takes 2,000 rows
	// a second.
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

// KeyOf is the key of the row of a user's key: its part and a hash.
func KeyOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%x%x", sum[31]%KeyParts, sum[:16])
}

func (p *Posted) part() int { return int(p.Key[0] - '0') }

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

// InsertPosted writes the rows of posts of one partition, all in one transaction. Known are the
// rows of keys that others had written before; the posts of these have none of their own. After an
// error it is not known which rows are written.
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
		err := row.InsistOn(ctx, t, writes...)
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

// lookPosted reads the rows of posts, notes those of others, and says whether the posts' own are
// there.
func lookPosted(
	ctx context.Context, t storage.Table, workload string, posts []*Posted, known map[string]Posted,
) (ours bool, err error) {
	var g errgroup.Group
	g.SetLimit(keysLooked)
	found := make([]row.Version[Posted], len(posts))
	for i, p := range posts {
		g.Go(func() (err error) {
			found[i], err = row.Row[Posted]{
				Table: t, Partition: KeysPartition(workload, p.part()), Key: p.Key,
				Timeout: row.RequestTimeout, Decode: readPosted,
			}.MustRead(ctx)
			return err
		})
	}
	err = g.Wait()
	for i, p := range posts {
		switch {
		case err != nil || found[i].Absent():
		case p.same(&found[i].Value):
			ours = true
		default:
			known[p.Key] = found[i].Value
		}
	}
	return ours, err
}
