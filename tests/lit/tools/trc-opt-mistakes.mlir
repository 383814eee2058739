// A mistake in the call is one message and exit code 1.

// RUN: not trc-opt %s -p arch-expnd-tree 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not trc-opt %s -p 'arch-expand-tree{fsue=true}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not trc-opt %s -p 'arch-rename-bn{a=1}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not trc-opt %s -p 'arch-expand-tree{fuse=3}' 2>&1 | filecheck %s --check-prefix=VALUE
// RUN: not trc-opt %s -p 'plan-create-compile-specs{batch=2,height=3}' 2>&1 | filecheck %s --check-prefix=COMMA
// RUN: not trc-opt %s -p 'arch-rename-bn{' 2>&1 | filecheck %s --check-prefix=BRACE
// RUN: not trc-opt %s -p 'arch-rename-bn,' 2>&1 | filecheck %s --check-prefix=LAST
// RUN: not trc-opt %s -p 'arch-plan{fuze=true}' 2>&1 | filecheck %s --check-prefix=NAMED
// RUN: not trc-opt %s -p arch-plam 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: not trc-opt %s --print-after=arch-rename-bn 2>&1 | filecheck %s --check-prefix=AFTER
// RUN: not trc-opt no-such-file.mlir 2>&1 | filecheck %s --check-prefix=FILE
// RUN: not trc-opt %S 2>&1 | filecheck %s --check-prefix=FOLDER
// RUN: not trc-opt %s -o no/such/folder.mlir 2>&1 | filecheck %s --check-prefix=OUTPUT
// RUN: not trc-opt %s --no-such-option 2>&1 | filecheck %s --check-prefix=ARGUMENT
// RUN: not trc-opt %s --input-format yaml 2>&1 | filecheck %s --check-prefix=FORMAT

// PASS:      error: unknown pass: 'arch-expnd-tree'; did you mean 'arch-expand-tree'?
// PASS-NOT:  Traceback
// OPTION:    error: unknown option of pass arch-expand-tree: 'fsue'; did you mean 'fuse'? (it takes fuse)
// NONE:      error: unknown option of pass arch-rename-bn: 'a' (it takes none)
// VALUE:     error: option fuse of pass arch-expand-tree is true or false, not '3'
// COMMA:     error: cannot read the pipeline:{{.*}}options are separated by spaces: {a=1 b=2}
// BRACE:     error: cannot read the pipeline: Expected argument name here
// BRACE-NEXT:  arch-rename-bn{
// LAST:      error: cannot read the pipeline 'arch-rename-bn,': a pass is expected after the last comma
// NAMED:     error: arch-plan has no option 'fuze'
// PIPELINE:  error: unknown pass: 'arch-plam'; did you mean 'arch-plan'?
// AFTER:     error: --print-after arch-rename-bn: no such pass in the pipeline (empty)
// FILE:      error: cannot read no-such-file.mlir: No such file or directory
// FOLDER:    error: cannot read {{.*}}: Is a directory
// OUTPUT:    error: cannot write no/such/folder.mlir: No such file or directory
// ARGUMENT:  error: unrecognized arguments: --no-such-option (see trc-opt --help)
// FORMAT:    error: argument --input-format: invalid choice: 'yaml'

builtin.module {
}
