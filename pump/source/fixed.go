package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// fixedText is a TextSource with the files that its patterns gave at one moment.
type fixedText struct {
	*TextSource
	print string // empty: it cannot be read again
	log   *slog.Logger
	files []fixedFile
	// encoding that the source names; nil: none
	encoding *encoding
}

// fixedFile is a file as it was when it was fingerprinted.
type fixedFile struct {
	name    string
	size    int64 // how much of it is read; -1: all that comes, without a size
	changed time.Time
	head    [sha256.Size]byte // of its first headed bytes
	headed  int
	id      fs.FileInfo // says whether a file is this one; nil: it cannot be read again
}

// headBytes is how much of a file's beginning is in its fingerprint.
const headBytes = 64 << 10

// Fix looks the files up and fingerprints them. The log is told of what hangs.
func (s *TextSource) Fix(ctx context.Context, log *slog.Logger) (Source, error) {
	return s.fixed(ctx, log)
}

func (s *TextSource) fixed(ctx context.Context, log *slog.Logger) (*fixedText, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	encoding, _ := s.encoding() // which Check has found
	fixed := &fixedText{TextSource: s, log: log, encoding: encoding}
	if len(s.Command) > 0 || s.Paths[0] == stdin {
		fixed.files = []fixedFile{{name: stdin, size: -1}}
		return fixed, nil
	}
	names, err := await(ctx, log, s.String(), s.expand, func([]string) {})
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	format := cmp.Or(s.Format, FormatJSONLines)
	fmt.Fprintf(sum, "%d %q %q %q %d %d\n", textVersion, format, s.Key, s.ID, s.maxLine(), len(names))
	if s.Separator != "" {
		fmt.Fprintf(sum, "%q\n", s.comma())
	}
	if encoding != nil {
		fmt.Fprintf(sum, "encoding %q\n", encoding.name)
	}
	again, total, changed := true, int64(0), time.Time{}
	head := make([]byte, headBytes)
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		fix := func() (fixedFile, error) { return fixFile(name, head) }
		f, err := await(ctx, log, name, fix, func(fixedFile) {})
		if err != nil {
			return nil, err
		}
		again = again && f.id != nil
		fixed.files = append(fixed.files, f)
		total += max(f.size, 0)
		if f.changed.After(changed) {
			changed = f.changed
		}
		fmt.Fprintf(sum, "%d %d %x\n", max(f.size, 0), f.changed.UnixNano(), f.head)
	}
	if again { // the numbers tell people what differs, the hash decides
		how := string(format)
		if encoding != nil {
			how += " encoding=" + encoding.name
		}
		fixed.print = fmt.Sprintf("%s: key=%.40q id=%.40q files=%d bytes=%d changed=%s %x", how, s.Key,
			s.ID, len(names), total, changed.UTC().Format(time.RFC3339Nano), sum.Sum(nil))
	}
	return fixed, nil
}

// fixFile looks at a file. A pipe or a device is not opened: that may wait, and cannot be read
// again.
func fixFile(name string, head []byte) (f fixedFile, err error) {
	st, err := os.Stat(name)
	switch {
	case err != nil:
		return f, err
	case st.IsDir():
		return f, fmt.Errorf("%s is a directory", name)
	case !st.Mode().IsRegular():
		return fixedFile{name: name, size: -1}, nil
	}
	open, err := openAtOnce(name)
	if err != nil {
		return f, err
	}
	defer open.Close()
	switch st, err = open.Stat(); {
	case err != nil:
		return f, err
	case !st.Mode().IsRegular():
		return f, fmt.Errorf("%s was replaced while it was looked up", name)
	}
	f = fixedFile{name: name, size: st.Size(), changed: st.ModTime(), id: st}
	n, err := io.ReadFull(open, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return f, err
	}
	if f.size == 0 && n > 0 {
		f.size = -1 // such as files of /proc, whose size is not known
	} else {
		n = int(min(int64(n), f.size)) // it may be growing
	}
	f.head, f.headed = sha256.Sum256(head[:n]), n
	return f, nil
}

// Fingerprint is of the files as they were when they were looked up.
func (s *fixedText) Fingerprint(context.Context) (string, error) { return s.print, nil }

func (s *fixedText) Open(_ context.Context, cursor []byte) (Reader, error) {
	r := &textReader{
		source: s.TextSource, files: s.files, format: s.format(), log: s.log,
		encoding: s.encoding,
	}
	for _, f := range s.files {
		r.total += max(f.size, 0)
	}
	if cursor != nil {
		if err := r.moveTo(cursor); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// openAtOnce opens what is taken for a file with a size. Something that has taken the place of such
// a file, such as a pipe without a writer, does not hold it up.
func openAtOnce(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// unchanged is an error if the file cannot be what was read of it; see TextSource. Cut says that
// its last line was taken for a whole one, without an end.
func (f *fixedFile) unchanged(cut bool) error {
	if f.size < 0 {
		return nil
	}
	open, err := openAtOnce(f.name)
	if err != nil {
		// All of the file has been read: that it cannot be seen any more does not change that.
		return nil //nolint:nilerr // for that reason
	}
	defer open.Close()
	return f.same(open, cut, "while it was read")
}

// isHere is an error if a file that is about to be read is not the one that was fingerprinted. With
// equal size and time their identities are not compared: some file systems give a file another
// identity each time.
func (f *fixedFile) isHere(open *os.File) error {
	st, err := open.Stat()
	if err == nil && st.Size() > f.size && !os.SameFile(st, f.id) {
		return fmt.Errorf("%w: %s was replaced before it was read: it had %d bytes, and the new one "+
			"has %d", ErrSourceChanged, f.name, f.size, st.Size())
	}
	return f.same(open, false, "before it was read")
}

// same is an error if an open file was changed since it was fingerprinted, or is another file: only
// appending is allowed.
func (f *fixedFile) same(open *os.File, cut bool, when string) error {
	st, err := open.Stat()
	if err != nil {
		return err
	}
	switch {
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: %s was replaced %s, and is not a file any more", ErrSourceChanged, f.name,
			when)
	case st.Size() < f.size:
		return fmt.Errorf("%w: %s has become shorter %s: it had %d bytes and has %d",
			ErrSourceChanged, f.name, when, f.size, st.Size())
	case st.Size() == f.size && !st.ModTime().Equal(f.changed):
		return fmt.Errorf("%w: %s was written to %s, at %v", ErrSourceChanged, f.name, when,
			st.ModTime())
	case st.Size() > f.size && cut:
		return fmt.Errorf("%w: %s has grown %s, and its last line was not complete then",
			ErrSourceChanged, f.name, when)
	}
	head := make([]byte, f.headed)
	if _, err := open.ReadAt(head, 0); err == io.EOF || err == nil && sha256.Sum256(head) != f.head {
		return fmt.Errorf("%w: %s was written anew %s", ErrSourceChanged, f.name, when)
	} else if err != nil {
		return err
	}
	return nil
}

// OfSource reports whether an error of a source says something about the source, so that waiting or
// another machine does not help. All else is taken for trouble of this machine: a mount that is
// missing, a disk that fails, a right that was not given.
func OfSource(err error) bool {
	if _, ok := errors.AsType[*BadInput](err); ok {
		return true
	}
	if _, ok := errors.AsType[*corrupt](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pump.ConfigError](err); ok {
		return true
	}
	return errors.Is(err, ErrSourceChanged) || errors.Is(err, ErrNotReplayable) ||
		errors.Is(err, errCursor)
}

// corrupt is text that no machine can read, such as a damaged gzip file.
type corrupt struct{ error }

func (e *corrupt) Unwrap() error { return e.error }

// judged marks an error of reading text as corrupt unless it is the machine's.
func judged(err error) error {
	if err == nil || err == io.EOF || ofMachine(err) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHalted) {
		return err
	}
	return &corrupt{err}
}

// ofMachine reports whether err comes from the operating system.
func ofMachine(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*exec.Error](err); ok {
		return true
	}
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// matches is filepath.Glob, but a directory that cannot be read is an error: what it
// holds is not known, and other files would get other numbers.
func matches(pattern string) (found []string, err error) {
	dir, base := filepath.Split(pattern)
	dirs := []string{filepath.Clean(dir)} // "." for none
	if isPattern(dir) {
		if dirs, err = matches(dirs[0]); err != nil {
			return nil, err
		}
	}
	for _, d := range dirs {
		if !isPattern(base) {
			if _, err := os.Lstat(filepath.Join(d, base)); err == nil {
				found = append(found, filepath.Join(d, base))
			} else if !absent(err) {
				return nil, err
			}
			continue
		}
		entries, err := os.ReadDir(d)
		if err != nil && !absent(err) {
			return nil, err
		}
		for _, e := range entries {
			if ok, err := filepath.Match(base, e.Name()); err != nil {
				return nil, err
			} else if ok {
				found = append(found, filepath.Join(d, e.Name()))
			}
		}
	}
	return found, nil
}

// absent reports whether err says that a path is not there, or leads through a file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func isPattern(path string) bool {
	magic := `*?[`
	if filepath.Separator != '\\' {
		magic += `\`
	}
	return strings.ContainsAny(path, magic)
}
