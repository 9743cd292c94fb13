package podengine

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// docs/podengine.md has a row for each method of a runtime, and says which are required: those
// that Unimplemented lacks.
func TestMethodsOfARuntimeAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/podengine.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| method | | without it |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		for _, name := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[0], -1) {
			if documented[name[1]] != "" {
				t.Errorf("%s has two rows", name[1])
			}
			documented[name[1]] = cells[1]
		}
	}
	for _, service := range []reflect.Type{reflect.TypeFor[internalapi.RuntimeService](), reflect.TypeFor[internalapi.ImageManagerService]()} {
		for method := range service.Methods() {
			_, optional := reflect.TypeFor[Unimplemented]().MethodByName(method.Name)
			if row := documented[method.Name]; row == "" || optional == (row == "required") {
				t.Errorf("docs/podengine.md says of %s %q; Unimplemented has it: %v", method.Name, row, optional)
			}
		}
	}
}

func TestUnimplemented(t *testing.T) {
	_, err := Unimplemented{}.Exec(t.Context(), nil)
	wrapped := fmt.Errorf("cannot run a command: %w", err)
	if !errors.Is(wrapped, errors.ErrUnsupported) || status.Code(err) != codes.Unimplemented || status.Code(wrapped) != codes.Unimplemented {
		t.Errorf("%v is not unsupported, or has code %v", wrapped, status.Code(wrapped))
	}
}
