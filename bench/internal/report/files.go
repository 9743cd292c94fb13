package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Save writes NAME.json, NAME.md and NAME.svg to a directory.
func (r Result) Save(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for suffix, write := range map[string]func(io.Writer) error{".json": r.json, ".md": r.Markdown, ".svg": r.SVG} {
		if err := save(filepath.Join(dir, name+suffix), write); err != nil {
			return err
		}
	}
	return nil
}

func save(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (r Result) json(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Load reads the JSON file of a result.
func Load(path string) (Result, error) {
	var r Result
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s is no result: %w", path, err)
	}
	return r, nil
}
