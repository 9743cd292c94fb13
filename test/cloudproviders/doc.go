// Package cloudproviders tests the nodes of managed clusters against what runs there.
package cloudproviders
