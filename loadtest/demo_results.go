package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// identity of a task.
type identity struct {
	Run     string
	Segment uint32
	N       uint64
}

// results are what the processors have written to their files, read while
// they write.
type results struct {
	files []*resultFile
	// seen counts the deliveries of each task that were handled.
	seen       map[identity]int
	duplicates int
	// sums holds the first result for each key, and mismatched the keys with
	// two results that differ; only for files to hash.
	sums       map[string]string
	mismatched map[string]bool
}

type resultFile struct {
	path   string
	offset int64
}

func newResults(paths ...string) *results {
	r := &results{seen: map[identity]int{}, sums: map[string]string{}, mismatched: map[string]bool{}}
	for _, p := range paths {
		r.files = append(r.files, &resultFile{path: p})
	}
	return r
}

// read takes in the whole lines that have come since the last call.
func (r *results) read() error {
	for _, f := range r.files {
		if err := r.readFile(f); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

func (r *results) readFile(f *resultFile) error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its processor has not begun
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(f.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(file, 256<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a part of a line is read again when it is whole
		}
		if err != nil {
			return err
		}
		if err := r.add(line); err != nil {
			return fmt.Errorf("at byte %d: %w", f.offset, err)
		}
		f.offset += int64(len(line))
	}
}

func (r *results) add(line []byte) error {
	var l struct {
		identity
		Key       string
		KeyBase64 []byte
		Result    json.RawMessage
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return err
	}
	r.seen[l.identity]++
	if r.seen[l.identity] > 1 {
		r.duplicates++
	}
	var sum fileSum
	if len(l.Result) == 0 || json.Unmarshal(l.Result, &sum) != nil || sum.SHA256 == "" {
		return nil
	}
	key := cmp.Or(l.Key, string(l.KeyBase64))
	if have, ok := r.sums[key]; ok && have != sum.SHA256 {
		r.mismatched[key] = true
	}
	r.sums[key] = sum.SHA256
	return nil
}

// handled is how many different tasks were handled.
func (r *results) handled() int { return len(r.seen) }

// compare checks the results against the files themselves: want gives the paths that should have
// been hashed, and each is hashed again here. Lost are the paths that have no result and are not
// quarantined; mismatched are wrong results, and results that no file asked for.
func (r *results) compare(
	want []string, quarantined map[string]bool,
) (lost, mismatched int, err error) {
	expected := make(map[string]bool, len(want))
	for _, path := range want {
		expected[path] = true
		got, ok := r.sums[path]
		if !ok {
			if !quarantined[path] {
				lost++
			}
			continue
		}
		sum, err := sumFile(path)
		if err != nil {
			return 0, 0, err
		}
		if sum.SHA256 != got || r.mismatched[path] {
			mismatched++
		}
	}
	for path := range r.sums {
		if !expected[path] {
			mismatched++
		}
	}
	return lost, mismatched, nil
}
