// A pass that fails leaves a file which makes it fail again; mistakes in the input before that do not.

// RUN: rm -rf %t.dir
// RUN: not trc-opt %s -p 'arch-expand-tree{fuse=true},arch-deduce-shapes' --reproducer-dir %t.dir 2>&1 | filecheck %s
// RUN: cat %t.dir/trc-opt-arch-deduce-shapes-*.mlir | filecheck %s --check-prefix=FILE
// RUN: not trc-opt %t.dir/trc-opt-arch-deduce-shapes-*.mlir -p arch-deduce-shapes --no-reproducer 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: rm -rf %t.dir
// RUN: not trc-opt %s -p 'arch-expand-tree{fuse=true},arch-deduce-shapes' --reproducer-dir %t.dir --no-reproducer 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: not ls %t.dir

// CHECK:      trc-opt-reproducer.mlir:23:3: error: layer 'conv1':
// CHECK:      note: reproducer written to {{.*}}trc-opt-arch-deduce-shapes-{{[0-9a-f]+}}.mlir

// FILE:       // Reproduce with:
// FILE-NEXT:  //   trc-opt {{.*}}.mlir -p arch-deduce-shapes
// FILE:       // CompileError:
// FILE:       arch.conv {{.*}} layer "conv1"

// AGAIN:      error: layer 'conv1':
// AGAIN-NOT:  reproducer written

arch.model @net(%input: tensor<?x2x2x3xf32>) {
  %0 = arch.conv %input {out_channels = 8, kernel = 7}
  arch.output %0
}
