package configfile

import (
	"fmt"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

type undefinedError struct{ name string }

func (e *undefinedError) Error() string {
	return fmt.Sprintf("the environment variable %s is not set", e.name)
}

// Expand replaces ${NAME} by the variable's value, ${file:PATH} by the text of a file, and $${ by a
// literal ${. It names the variables that it used, and the files with their prefix. It does not
// expand a value again. Its errors never hold a value.
func Expand(s string, env func(string) (string, bool)) (text string, names []string, err error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String(), names, nil
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(before + "{") // its own $ is the one of ${
			s = after
			continue
		}
		name, rest, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return "", nil, fmt.Errorf("${ is not closed by }")
		case strings.HasPrefix(name, filePrefix):
			value, err := readSecret(name[len(filePrefix):])
			if err != nil {
				return "", nil, err
			}
			b.WriteString(before + value)
			names = append(names, name)
			s = rest
			continue
		case !variable.MatchString(name):
			return "", nil,
				fmt.Errorf("${...} holds neither the name of an environment variable nor file:PATH")
		}
		value, ok := env(name)
		if !ok {
			return "", nil, &undefinedError{name}
		}
		b.WriteString(before + value)
		names = append(names, name)
		s = rest
	}
}
