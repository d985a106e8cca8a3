package source

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

	"github.com/queuepump/queuepump/pump"
)

// Files makes a source whose tasks are files: each path that is a file, and every regular file
// under each path that is a directory, in sorted order. Symbolic links inside a directory are
// neither followed nor tasks. Key and body of a task are its path, beginning with the path given
// here: give absolute ones if the processors run in another directory.
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

// Fingerprint is of the sorted paths with each file's size and time of change. The bodies of tasks
// are paths, so it matters here where the files lie.
func (s *filesSource) Fingerprint(ctx context.Context) (string, error) {
	if len(s.paths) == 0 {
		return "", pump.Invalid("files", "there is nothing to read", "name a directory or a file")
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
			continue // removed since its directory was read: as if removed before
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
	begun  bool        // its first level is read
	levels []treeLevel // the directories from the root to here
	after  []string    // on opening at a cursor: the parts of the path given last
	given  treePosition
	body   []byte
}

// treePosition is the file given last. It changes when a file is given and at
// no other time: on its way to the next one the walk may be stopped anywhere (P2.1).
type treePosition struct {
	root int
	path string // below the root; "." is the root itself, "" comes before its first file
}

// treeLevel is one directory with the names that are still to come.
type treeLevel struct {
	below string // its path below the root, with a separator at the end; "" for the root
	path  string
	names []string // sorted; directories end in a separator
}

const separator = string(filepath.Separator)

func (r *treeReader) Look(context.Context) (ready bool, err error) { return true, nil }

func (r *treeReader) Next(ctx context.Context) (Record, error) {
	path, err := r.next(ctx)
	if err != nil {
		return Record{}, err
	}
	r.read++
	r.body = append(r.body[:0], path...)
	return Record{Key: r.body, Body: r.body}, nil
}

// next walks to the next file. A name is taken from its level, and a root is
// begun, only when nothing can fail any more, so that after an error the walk
// stands where it was.
func (r *treeReader) next(ctx context.Context) (string, error) {
	for ; r.root < len(r.roots); r.root, r.begun = r.root+1, false {
		if !r.begun {
			path, err := r.begin(ctx)
			if path != "" || err != nil {
				return path, err
			}
		}
		for depth := len(r.levels); depth > 0; depth = len(r.levels) {
			l := &r.levels[depth-1]
			if len(l.names) == 0 {
				r.levels = r.levels[:depth-1]
				continue
			}
			name := l.names[0]
			if dir, ok := strings.CutSuffix(name, separator); ok {
				levels, err := enter(ctx, r.levels, l.below+name, filepath.Join(l.path, dir), nil)
				if err != nil {
					return "", err
				}
				levels[depth-1].names = l.names[1:] // not l's: appending may have moved the levels
				r.levels = levels
				continue
			}
			l.names = l.names[1:]
			r.given = treePosition{r.root, l.below + name}
			return filepath.Join(l.path, name), nil
		}
	}
	return "", io.EOF
}

// begin looks at a root: it is itself the task, or its first level is read.
func (r *treeReader) begin(ctx context.Context) (string, error) {
	root := r.roots[r.root]
	st, err := os.Stat(root) // the caller named this root, so a symbolic link is followed
	if err != nil {
		return "", err
	}
	given := r.after != nil
	switch {
	case st.IsDir():
		levels, err := enter(ctx, r.levels, "", root, r.after)
		if err != nil {
			return "", err
		}
		r.levels = levels
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s is neither a file nor a directory", root)
	}
	r.begun, r.after = true, nil
	if st.IsDir() || given { // given: before the cursor was taken
		return "", nil
	}
	r.given = treePosition{r.root, "."}
	return root, nil
}

// enter reads a directory and appends it to the levels. It leaves out all that
// sorts at or before the path `after` below it: comparing names, not counting
// entries, because files may have come and gone (P2.3).
func enter(
	ctx context.Context, levels []treeLevel, below, path string, after []string,
) ([]treeLevel, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return levels, nil // removed since its parent was read
	}
	if err != nil {
		return nil, err
	}
	l := treeLevel{below: below, path: path}
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
	levels = append(levels, l)
	if inside {
		return enter(ctx, levels, below+after[0]+separator, filepath.Join(path, after[0]), after[1:])
	}
	return levels, nil
}

// AppendCursor writes the number of the root and the path below it that was
// given last, not a count.
func (r *treeReader) AppendCursor(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(r.given.root)), r.given.path...)
}

func (r *treeReader) moveTo(cursor []byte) error {
	root, n := binary.Uvarint(cursor)
	if n <= 0 || root > uint64(len(r.roots)) {
		return errCursor
	}
	r.root = int(root)
	r.given = treePosition{r.root, string(cursor[n:])}
	if r.given.path != "" {
		r.after = strings.Split(r.given.path, separator)
	}
	return nil
}

func (r *treeReader) Progress() (done, total int64) { return r.read, r.total }

func (r *treeReader) Close() error { return nil }
