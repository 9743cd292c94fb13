// Package ec2 is the driver of provider machine whose machines are instances of Amazon EC2. It makes
// the few calls of EC2's Query API itself, signed by AWS's SDK: the SDK's own client of EC2 has
// hundreds of operations. README.md has the settings, the rights and the limits.
package ec2
