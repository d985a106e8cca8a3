package pump

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// Files makes a source whose tasks are files: each path that is a file, and
// every regular file under each path that is a directory, in sorted order.
// Symbolic links inside a directory are not followed, nor are they tasks. Key
// and body of a task are its path, beginning with the path given here: give
// absolute ones if the processors run in another directory.
func Files(paths ...string) Source {
	s := &filesSource{}
	for _, p := range paths {
		s.paths = append(s.paths, filepath.Clean(p))
	}
	return s
}

type filesSource struct {
	paths []string
	count atomic.Int64 // files seen by the last fingerprint, for Progress
}

func (s *filesSource) String() string { return strings.Join(s.paths, ", ") }

// Fingerprint is of the sorted paths with each file's size and time of change.
// The bodies of tasks are paths, so here where the files lie does matter.
func (s *filesSource) Fingerprint(ctx context.Context) (string, error) {
	if len(s.paths) == 0 {
		return "", &ConfigError{Field: "files", Problem: "there is nothing to read", Fix: "name a directory or a file"}
	}
	sum := sha256.New()
	r := &treeReader{roots: s.paths}
	count := int64(0)
	for {
		path, err := r.next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since its directory was read: as if it had been before
		}
		if err != nil {
			return "", err
		}
		count++
		fmt.Fprintf(sum, "%q %d %d\n", path, st.Size(), st.ModTime().UnixNano())
	}
	s.count.Store(count)
	return fmt.Sprintf("files:%x", sum.Sum(nil)), nil
}

func (s *filesSource) Open(_ context.Context, cursor []byte) (Reader, error) {
	r := &treeReader{roots: s.paths, total: s.count.Load()}
	if cursor != nil {
		if err := r.moveTo(cursor); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// treeReader walks the trees. It holds the names in the directories that lead
// to where it is, never a whole tree: the widest directories bound its memory.
type treeReader struct {
	roots []string
	total int64
	read  int64

	root   int         // being walked
	begun  bool        // it has been looked at
	levels []treeLevel // the directories from the root to here
	last   string      // the name given last, in the innermost directory; "" before the root's first, "." for the root itself
	after  []string    // on opening at a cursor: the parts of the path given last
	body   []byte
}

// treeLevel is one directory with the names that are still to come.
type treeLevel struct {
	name  string
	path  string
	names []string // sorted; directories end in a separator
}

const separator = string(filepath.Separator)

func (r *treeReader) Next(ctx context.Context) (Record, error) {
	path, err := r.next(ctx)
	if err != nil {
		return Record{}, err
	}
	r.read++
	r.body = append(r.body[:0], path...)
	return Record{Key: r.body, Body: r.body}, nil
}

// next walks to the next file.
func (r *treeReader) next(ctx context.Context) (string, error) {
	for ; r.root < len(r.roots); r.root, r.begun, r.last = r.root+1, false, "" {
		if !r.begun {
			path, err := r.begin(ctx)
			if path != "" || err != nil {
				return path, err
			}
		}
		for len(r.levels) > 0 {
			l := &r.levels[len(r.levels)-1]
			if len(l.names) == 0 {
				r.levels = r.levels[:len(r.levels)-1]
				continue
			}
			name := l.names[0]
			l.names = l.names[1:]
			if dir, ok := strings.CutSuffix(name, separator); ok {
				if err := r.enter(ctx, dir, filepath.Join(l.path, dir), nil); err != nil {
					return "", err
				}
				continue
			}
			r.last = name
			return filepath.Join(l.path, name), nil
		}
	}
	return "", io.EOF
}

// begin looks at a root: it is itself the task, or its first level is read.
func (r *treeReader) begin(ctx context.Context) (string, error) {
	root := r.roots[r.root]
	st, err := os.Stat(root) // a root that is a symbolic link was meant by whoever named it
	if err != nil {
		return "", err
	}
	r.begun = true
	after := r.after
	r.after = nil
	switch {
	case st.IsDir():
		return "", r.enter(ctx, ".", root, after)
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s is neither a file nor a directory", root)
	case after != nil: // it was given before the cursor was taken
		return "", nil
	}
	r.last = "."
	return root, nil
}

// enter reads a directory. What sorts at or before the path `after` below it is
// left out: comparing names, not counting entries, because files may have come
// and gone (P2.3).
func (r *treeReader) enter(ctx context.Context, name, path string, after []string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since its parent was read
	}
	if err != nil {
		return err
	}
	l := treeLevel{name: name, path: path}
	inside := false
	for _, e := range entries {
		if len(after) > 0 && (e.Name() < after[0] || e.Name() == after[0] && !e.IsDir()) {
			continue
		}
		switch {
		case len(after) > 0 && e.Name() == after[0]:
			inside = true
		case e.IsDir():
			l.names = append(l.names, e.Name()+separator)
		case e.Type().IsRegular():
			l.names = append(l.names, e.Name())
		}
	}
	r.levels = append(r.levels, l)
	if inside {
		return r.enter(ctx, after[0], filepath.Join(path, after[0]), after[1:])
	}
	return nil
}

// AppendCursor writes the number of the root and the path below it that was
// given last, not a count: P2.3.
func (r *treeReader) AppendCursor(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.root))
	if r.after != nil { // opened at a cursor and not read from yet
		return append(dst, strings.Join(r.after, separator)...)
	}
	if r.last == "" {
		return dst
	}
	for _, l := range r.levels[min(1, len(r.levels)):] {
		dst = append(append(dst, l.name...), separator...)
	}
	return append(dst, r.last...)
}

func (r *treeReader) moveTo(cursor []byte) error {
	root, n := binary.Uvarint(cursor)
	if n <= 0 || root > uint64(len(r.roots)) {
		return errCursor
	}
	r.root = int(root)
	if n < len(cursor) {
		r.after = strings.Split(string(cursor[n:]), separator)
	}
	return nil
}

func (r *treeReader) Progress() (done, total int64) { return r.read, r.total }

func (r *treeReader) Close() error { return nil }
