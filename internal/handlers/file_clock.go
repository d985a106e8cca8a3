package handlers

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// overdue is the time after which a call of the system counts as hanging. A write and fsync of 4
// MiB takes a slow disk a second.
const overdue = 5 * time.Second

// trouble is what keeps a file from being written. File.mu guards it.
type trouble struct {
	does  string    // the call of the system that is under way; "": none
	began time.Time // when it was made
	said  bool      // the log has said that it does not return
	hid   error     // what was amiss before the log said so

	why   error     // why nothing is settled; nil: all is well
	since time.Time // since when
}

// call makes a call of the system, unless the file and its tasks were given up.
func (f *File) call(does string, do func() error) error {
	select {
	case <-f.broken:
		return errBrokenFile
	default:
		return f.timed(does, do)
	}
}

// timed makes a call of the system. It may never return, and the goroutine that makes it cannot be
// freed. So only the committer waits for a call. watch says that the call hangs, and gives the file
// up after Patience, whether it has returned or not.
func (f *File) timed(does string, do func() error) error {
	f.mu.Lock()
	f.does, f.began, f.said = does, time.Now(), false
	f.mu.Unlock()
	err := do()
	f.mu.Lock()
	f.does = ""
	said := f.said
	if said { // the caller notes the result, and may have no line to write
		f.why = f.hid
	}
	f.mu.Unlock()
	if said {
		f.opts.Log.Info("it has returned", "file", f.path, "hung", does)
	}
	return err
}

// watch looks each second whether a call hangs.
func (f *File) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			f.check(now)
		case <-f.broken:
			return
		case <-f.done:
			return
		case <-f.stop:
			return
		}
	}
}

func (f *File) check(now time.Time) {
	f.mu.Lock()
	took := now.Sub(f.began)
	hangs := f.does != "" && took >= min(overdue, f.opts.Patience)
	first := hangs && !f.said
	if first {
		f.said, f.hid = true, f.why
		if f.why == nil {
			f.since = f.began
		}
		f.why = fmt.Errorf("%s has not returned", f.does)
	}
	does := f.does
	f.mu.Unlock()
	if first {
		f.opts.Log.Error("nothing is settled until this returns", "file", f.path, "hangs", does,
			"for", took.Round(time.Second))
	}
	if hangs && took >= f.opts.Patience {
		f.giveUp()
	}
}

// fails notes why nothing can be written. The log says so the first time.
func (f *File) fails(err error) {
	f.mu.Lock()
	first := f.why == nil
	if first {
		f.since = time.Now()
	}
	f.why = cause(err)
	f.mu.Unlock()
	if first {
		f.opts.Log.Error("nothing is settled until this works", "file", f.path, "error", cause(err))
	}
}

// works notes that all is well.
func (f *File) works() {
	f.mu.Lock()
	again := f.why != nil
	f.why = nil
	f.mu.Unlock()
	if again {
		f.opts.Log.Info("writing works again", "file", f.path)
	}
}

// giveUp gives the tasks that wait back. Nothing is written any more.
func (f *File) giveUp() {
	f.mu.Lock()
	why, took := f.why, time.Since(f.since).Round(time.Second)
	select {
	case <-f.broken:
		why = nil
	default:
	}
	if why == nil || f.opts.Broken == nil {
		f.mu.Unlock()
		return
	}
	close(f.broken)
	f.mu.Unlock()
	if errors.Is(why, syscall.EPIPE) {
		why = fmt.Errorf("%w: its reader is gone", why)
	}
	const text = "%s cannot be written: %w (for %v; what was not written has not been settled)"
	f.opts.Broken(fmt.Errorf(text, f.path, why, took))
}

// Amiss says why nothing is written, and for how long; "": all is well.
func (f *File) Amiss() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == nil {
		return ""
	}
	return fmt.Sprintf("--out %s: %v, for %v", f.path, f.why, time.Since(f.since).Round(time.Second))
}
