package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

const envPrefix = "SEALANE_"

// keyDelimiter is what koanf splits nested keys with. No key of ours is nested: only the outermost names are looked at.
const keyDelimiter = "."

// envOfOthers are variables with our prefix that are not settings of a node: those of the client commands, and what Kubernetes sets in every
// container beside a service named sealane.
func envOfOthers(name string) bool {
	return name == "SEALANE_ADDR" || name == "SEALANE_OUTPUT" || name == "SEALANE_PORT" ||
		strings.HasPrefix(name, "SEALANE_SERVICE_") || strings.HasPrefix(name, "SEALANE_PORT_") || strings.HasPrefix(name, "SEALANE_TEST_")
}

// fillFlags gives every flag that is not on the command line its value from the environment, or else from the file, or else leaves the
// default. Every unknown key and every bad value is reported, each with its name and its source.
func fillFlags(flags *pflag.FlagSet, path string, environ []string) error {
	fromFile, fromEnv := koanf.New(keyDelimiter), koanf.New(keyDelimiter)
	if path != "" {
		if err := fromFile.Load(file.Provider(path), yaml.Parser()); err != nil {
			return usagef("config: %s: %w", path, cause(err))
		}
	}
	variables := env.Provider(keyDelimiter, env.Opt{
		Prefix: envPrefix, EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if envOfOthers(name) {
				return "", nil
			}
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-"), value
		},
	})
	if err := fromEnv.Load(variables, nil); err != nil {
		return usagef("environment: %w", err)
	}
	unknown := errors.Join(unknownKeys(flags, path, fromFile), unknownVariables(flags, fromEnv))
	if unknown != nil {
		return &usageError{unknown, "the keys are the flags: `sealane serve --help` shows them"}
	}
	merged, source := koanf.New(keyDelimiter), map[string]string{}
	for _, layer := range []struct {
		from *koanf.Koanf
		name func(key string) string
	}{{fromFile, func(string) string { return path }}, {fromEnv, variableOf}} {
		if err := merged.Merge(layer.from); err != nil {
			return usagef("%w", err)
		}
		for k := range layer.from.Raw() {
			source[k] = layer.name(k)
		}
	}
	var problems []error
	values := merged.Raw()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		problems = append(problems, setFlag(flags.Lookup(key), values[key], source[key]))
	}
	if err := errors.Join(problems...); err != nil {
		return &usageError{err: err}
	}
	return nil
}

// setFlag gives one flag its value, unless the command line did.
func setFlag(f *pflag.Flag, value any, source string) error {
	if f.Changed {
		return nil
	}
	var text string
	switch v := value.(type) {
	case string, bool, int, int64, uint64, float64:
		text = fmt.Sprint(v)
	default:
		return fmt.Errorf("%s: %s wants one value, not a list, a map or nothing", source, f.Name)
	}
	if err := f.Value.Set(text); err != nil {
		return fmt.Errorf("%s: %s is %q, want %s", source, f.Name, text, kindOf(f))
	}
	return nil
}

func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return "a duration like 10s or 1m30s"
	case "bool":
		return "true or false"
	case "string":
		return "text"
	}
	return "a whole number"
}

// isKey tells whether a flag can be set by file and environment; --config and --help cannot.
func isKey(f *pflag.Flag) bool {
	return f != nil && f.Name != "config" && f.Name != "help" && f.Name != "output"
}

func unknownKeys(flags *pflag.FlagSet, path string, k *koanf.Koanf) error {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(k.Raw())) {
		if !isKey(flags.Lookup(key)) {
			problems = append(problems, fmt.Errorf("%s: unknown key %q%s", path, key, nearest(flags, key)))
		}
	}
	return errors.Join(problems...)
}

func unknownVariables(flags *pflag.FlagSet, k *koanf.Koanf) error {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(k.Raw())) {
		if !isKey(flags.Lookup(key)) {
			problems = append(problems, fmt.Errorf("environment: unknown variable %s%s", variableOf(key), nearest(flags, key)))
		}
	}
	return errors.Join(problems...)
}

func variableOf(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// nearest offers the key that was probably meant: the same letters but for the separators.
func nearest(flags *pflag.FlagSet, key string) string {
	letters := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	found := ""
	flags.VisitAll(func(f *pflag.Flag) {
		if isKey(f) && letters(f.Name) == letters(key) {
			found = fmt.Sprintf(", did you mean %s?", f.Name)
		}
	})
	return found
}

// cause leaves out the path that the system's error repeats.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
