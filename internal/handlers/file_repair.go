package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// lineStart is how every line of ours begins.
const lineStart = `{"run":"`

// maxTail bounds the search for the last line end. A line is a task's body and
// little more, and a crash leaves parts of one group of lines at most.
const maxTail = 256 << 20

// prepare locks a regular file against other processes, repairs its end and
// gives its length.
func prepare(f *os.File) (size int64, regular bool, err error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, false, err
	case info.IsDir():
		return 0, false, errors.New("is a directory")
	case !info.Mode().IsRegular():
		return 0, false, nil
	}
	if err := lock(f); err != nil {
		return 0, true, err
	}
	tail, err := lastLine(f, info.Size())
	if err != nil {
		return 0, true, err
	}
	size = info.Size()
	switch {
	case len(tail) == 0:
		return size, true, nil
	case json.Valid(tail): // only the line end is missing
		if _, err := f.Write([]byte("\n")); err != nil {
			return 0, true, err
		}
		return size + 1, true, f.Sync()
	// Zeros are what some file systems leave of a write that a power cut hit.
	case isTorn(bytes.TrimRight(tail, "\x00")):
		size -= int64(len(tail))
		if err := f.Truncate(size); err != nil {
			return 0, true, err
		}
		return size, true, f.Sync()
	default:
		return 0, true,
			errors.New("its last line has no end and was not written by a processor; is it the right file?")
	}
}

// isTorn reports whether an unended last line is the beginning of one of ours.
func isTorn(tail []byte) bool {
	n := min(len(tail), len(lineStart))
	return strings.HasPrefix(lineStart, string(tail[:n]))
}

// lastLine gives what stands behind the last line end.
func lastLine(f io.ReaderAt, size int64) ([]byte, error) {
	const step = 64 << 10
	for n := int64(step); ; n *= 4 {
		n = min(n, size)
		b := make([]byte, n)
		if _, err := f.ReadAt(b, size-n); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return b[i+1:], nil
		}
		switch {
		case n == size:
			return b, nil
		case n >= maxTail:
			return nil, fmt.Errorf("its last line is longer than %d MiB; is it the right file?", maxTail>>20)
		}
	}
}
