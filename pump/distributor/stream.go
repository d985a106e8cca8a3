package distributor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/queuepump/queuepump/pump/source"
)

// stream makes a source that can be read only once fit for a named run: it is read from its start
// again, and what comes is compared with what was sent. Its fingerprint is that of the first
// record, and its cursor the number and the hash of the records before it. A record that changed
// behind the last checkpoint is not noticed, and is taken for a copy if it was put.
type stream struct {
	from   source.Source
	reader *streamReader // nil until the first record was read
	opened bool
}

// Fingerprint waits for the first record.
func (s *stream) Fingerprint(ctx context.Context) (string, error) {
	if s.reader == nil {
		from, err := s.from.Open(ctx, nil)
		if err != nil {
			return "", err
		}
		r := &streamReader{Reader: from, sum: xxhash.New()}
		rec, err := r.next(ctx)
		if bad, ok := errors.AsType[*source.BadInput](err); ok {
			bad.Raw = bytes.Clone(bad.Raw)
		} else if err != nil && err != io.EOF {
			from.Close()
			return "", err
		}
		rec.Key, rec.Body = bytes.Clone(rec.Key), bytes.Clone(rec.Body)
		r.first, r.err, r.again = rec, err, true
		s.reader = r
	}
	if s.reader.err == io.EOF {
		return "stream without records", nil
	}
	return fmt.Sprintf("stream that begins with %016x", s.reader.sum.Sum64()), nil
}

// Open reads up to the cursor, and is [source.ErrSourceChanged] if that is not what was read
// before. A process can open a stream once.
func (s *stream) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	if s.opened {
		return nil, source.ErrNotReplayable
	}
	s.opened = true
	r := s.reader
	if len(cursor) == 0 {
		return r.as(), nil
	}
	before, n := binary.Uvarint(cursor)
	if n <= 0 || len(cursor) != n+8 {
		return nil, errors.New("the saved position is not that of a stream")
	}
	for r.n < before {
		_, err := r.Next(ctx)
		if _, bad := errors.AsType[*source.BadInput](err); err == io.EOF {
			return nil, fmt.Errorf("%w: %d records were sent, and now there are %d",
				source.ErrSourceChanged, before, r.n)
		} else if err != nil && !bad {
			return nil, err
		}
	}
	if binary.BigEndian.Uint64(cursor[n:]) != r.sum.Sum64() {
		return nil, fmt.Errorf("%w: the first %d records are not those that were sent",
			source.ErrSourceChanged, before)
	}
	return r.as(), nil
}

// streamReader counts and hashes the records that it gives.
type streamReader struct {
	source.Reader
	n   uint64
	sum *xxhash.Digest // of n records
	// first and err are what was read for the fingerprint, if again is set.
	first source.Record
	err   error
	again bool
}

func (r *streamReader) Next(ctx context.Context) (source.Record, error) {
	if r.again && ctx.Err() == nil {
		r.again = false
		if r.err != io.EOF {
			r.n++
		}
		return r.first, r.err
	}
	rec, err := r.next(ctx)
	if _, bad := errors.AsType[*source.BadInput](err); err == nil || bad {
		r.n++
	}
	return rec, err
}

// next reads and hashes a record.
func (r *streamReader) next(ctx context.Context) (source.Record, error) {
	rec, err := r.Reader.Next(ctx)
	if bad, ok := errors.AsType[*source.BadInput](err); ok {
		r.hash("bad", bad.Raw)
	} else if err == nil {
		r.hash(rec.ID, rec.Key)
		r.hash("", rec.Body)
	}
	return rec, err
}

func (r *streamReader) hash(id string, text []byte) {
	var size [16]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(id)))
	binary.BigEndian.PutUint64(size[8:], uint64(len(text)))
	r.sum.Write(size[:])
	r.sum.WriteString(id)
	r.sum.Write(text)
}

func (r *streamReader) AppendCursor(dst []byte) []byte {
	if r.n == 0 {
		return dst
	}
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(dst, r.n), r.sum.Sum64())
}

// as keeps what the source's reader says of pauses: without it each record is handed on at once.
func (r *streamReader) as() source.Reader {
	if p, ok := r.Reader.(source.Pausing); ok {
		return struct {
			*streamReader
			source.Pausing
		}{r, p}
	}
	return r
}
