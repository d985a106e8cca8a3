package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// lineStart is how every line of ours begins.
const lineStart = `{"run":"`

// maxTail bounds the search for the last line end. A line is a task's body and
// little more, and a crash leaves parts of one group of lines at most.
const maxTail = 256 << 20

// mend repairs the end of a regular file and gives its length.
func mend(f sink) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	tail, err := lastLine(f, size)
	if err != nil {
		return 0, err
	}
	switch {
	case len(tail) == 0:
		return size, nil
	case json.Valid(tail): // only the line end is missing
		if _, err := f.Write([]byte("\n")); err != nil {
			return 0, err
		}
		return size + 1, f.Sync()
	// Some file systems leave zeros of a write that a power cut hit.
	case isTorn(bytes.TrimRight(tail, "\x00")):
		size -= int64(len(tail))
		if err := f.Truncate(size); err != nil {
			return 0, err
		}
		return size, f.Sync()
	default:
		return 0,
			errors.New("its last line has no end and was not written by a processor; is it the right file?")
	}
}

// repair cuts off what a failed write may have left, and never lengthens the file. Another program
// may have emptied the file since the last write, or have written to it: then the lines go on at
// its end.
func (f *File) repair() error {
	torn := f.torn
	if !f.regular { // it cannot be cut; ending the line is the best choice
		f.torn = false
		return nil
	}
	return f.call("mending its end", func() error {
		info, err := f.f.Stat()
		switch {
		case err != nil:
			return err
		case info.Size() == f.size:
		case torn && info.Size() > f.size:
			if err := f.f.Truncate(f.size); err != nil {
				return err
			}
		default:
			size, err := mend(f.f)
			if err != nil {
				return err
			}
			f.opts.Log.Warn("another program has changed the file's length; lines go on at its end",
				"file", f.path, "was", f.size, "is", size)
			f.size = size
		}
		f.torn = false
		return nil
	})
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
