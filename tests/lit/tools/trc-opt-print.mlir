// What is printed: each pass, one pass, places, the generic form, a file, times.

// RUN: trc-opt %s -p 'arch-expand-tree{fuse=true},arch-rename-bn' --print-after-all 2>&1 >%t.out | filecheck %s --check-prefix=AFTER
// RUN: filecheck %s --check-prefix=LAST < %t.out
// RUN: trc-opt %s -p arch-expand-tree,arch-rename-bn --print-after=arch-rename-bn 2>&1 >/dev/null | filecheck %s --check-prefix=ONE
// RUN: trc-opt %s --print-debuginfo | filecheck %s --check-prefix=PLACES
// RUN: trc-opt %s --print-debuginfo | trc-opt --print-debuginfo | filecheck %s --check-prefix=PLACES
// RUN: trc-opt %s --print-op-generic | filecheck %s --check-prefix=WITHOUT-FORMAT
// RUN: trc-opt %s -p arch-expand-tree -o %t.mlir
// RUN: filecheck %s --check-prefix=LAST < %t.mlir
// RUN: trc-opt %s -p arch-expand-tree --time-passes 2>&1 >/dev/null | filecheck %s --check-prefix=TIMES

// AFTER:       // -----// IR after arch-expand-tree{fuse=true} //----- //
// AFTER-NEXT:  builtin.module {
// AFTER:         layer "relu1"
// AFTER:       // -----// IR after arch-rename-bn //----- //
// AFTER:         layer "relu1"

// LAST:        builtin.module {
// LAST:          layer "relu1"
// LAST-NOT:    IR after

// ONE-NOT:     IR after arch-expand-tree
// ONE:         IR after arch-rename-bn

// PLACES:      arch.relu %input{{.*}}loc("{{.*}}trc-opt-print.mlir":35:3)

// WITHOUT-FORMAT: "builtin.module"() ({
// WITHOUT-FORMAT: "arch.relu"

// TIMES:       (read)
// TIMES:       arch-expand-tree
// TIMES:       100.0% (all)
arch.model @net(%input: tensor<?x1x1x16xf32>) {
  %0 = arch.relu %input
  arch.output %0
}
