package opencensus

import (
	"fmt"
	"maps"
	"math"
	"slices"

	octrace "go.opencensus.io/trace"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// attributesOf returns the fields as attributes, in the order of their keys.
func attributesOf(fields log.Fields) []octrace.Attribute {
	attrs := make([]octrace.Attribute, 0, len(fields)+1)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, attributeOf(key, fields[key]))
	}
	return attrs
}

// attributeOf keeps the types that OpenCensus knows. The rest becomes text.
func attributeOf(key string, value any) octrace.Attribute {
	switch v := value.(type) {
	case string:
		return octrace.StringAttribute(key, v)
	case bool:
		return octrace.BoolAttribute(key, v)
	case int:
		return octrace.Int64Attribute(key, int64(v))
	case int8:
		return octrace.Int64Attribute(key, int64(v))
	case int16:
		return octrace.Int64Attribute(key, int64(v))
	case int32:
		return octrace.Int64Attribute(key, int64(v))
	case int64:
		return octrace.Int64Attribute(key, v)
	case uint8:
		return octrace.Int64Attribute(key, int64(v))
	case uint16:
		return octrace.Int64Attribute(key, int64(v))
	case uint32:
		return octrace.Int64Attribute(key, int64(v))
	case uint:
		if v <= math.MaxInt64 {
			return octrace.Int64Attribute(key, int64(v))
		}
	case uint64:
		if v <= math.MaxInt64 {
			return octrace.Int64Attribute(key, int64(v))
		}
	case float32:
		return octrace.Float64Attribute(key, float64(v))
	case float64:
		return octrace.Float64Attribute(key, v)
	}
	return octrace.StringAttribute(key, fmt.Sprint(value))
}
