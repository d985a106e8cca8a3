package configfile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

type undefinedError struct{ name string }

func (e *undefinedError) Error() string {
	return fmt.Sprintf("the environment variable %s is not set", e.name)
}

func (e *undefinedError) fix() string { return "run `export " + e.name + "=...` first" }

// Expand replaces ${NAME} by the variable's value, ${file:PATH} by the text of a file, and $${ by a
// literal ${. It names the variables that it used. It does not expand a value again. Its errors
// never hold a value.
func Expand(s string, env func(string) (string, bool)) (text string, names []string, err error) {
	text = reference.ReplaceAllStringFunc(s, func(ref string) (value string) {
		name, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
		path, file := strings.CutPrefix(name, filePrefix)
		var problem error
		switch {
		case ref == "$${":
			return "${"
		case !closed:
			problem = errors.New("${ is not closed by }")
		case file:
			value, problem = readSecret(path)
		case !variable.MatchString(name):
			problem = errors.New("${...} holds neither the name of an environment variable nor file:PATH")
		default:
			var ok bool
			if value, ok = env(name); !ok {
				problem = &undefinedError{name}
			}
			names = append(names, name)
		}
		err = cmp.Or(err, problem)
		return value
	})
	if err != nil {
		return "", nil, err
	}
	return text, names, nil
}
