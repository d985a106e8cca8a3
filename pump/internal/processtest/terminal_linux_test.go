package processtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal makes a terminal of 24 lines of 100 columns: the side of its user, and that of the
// command in it.
func openTerminal(t *testing.T) (user, command *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there are no terminals here: ", err)
	}
	must(t, err)
	var number, unlocked int32
	size := [4]uint16{24, 100}
	for _, ask := range []struct {
		what uintptr
		of   unsafe.Pointer
	}{
		{syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), ask.what, uintptr(ask.of)); no != 0 {
			t.Fatal(no)
		}
	}
	command, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return user, command
}
