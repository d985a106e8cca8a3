package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// size is a flag of bytes, such as 40KiB.
type size int

func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.Itoa(int(*s))
}

func (s *size) Type() string { return "SIZE" }

func (s *size) Set(text string) error {
	number, unit := text, 1
	for name, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, is := strings.CutSuffix(text, name); is {
			number, unit = rest, bytes
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 20)
	if err != nil {
		return fmt.Errorf("%q is not a size; write it as 40KiB, or in bytes", text)
	}
	*s = size(int(n) * unit)
	return nil
}

// BlobAboveFlag adds the flag by which bodies go into blobs.
func BlobAboveFlag(cmd *cobra.Command, into *int) {
	cmd.Flags().Var((*size)(into), "blob-above", "put the body of each task over this many bytes "+
		"into a blob, such as 40KiB; needs delivery: once (default: none)")
}
