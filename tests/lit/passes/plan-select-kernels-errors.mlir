// RUN: trc-opt %s -p plan-select-kernels --split-input-file --verify-diagnostics

arch.model @unknown(%x: tensor<?x4x4x8xf32>) {
  // expected-error@+1 {{layer 'conv1': trc cannot compile arch.conv yet: no descriptor is registered for it}}
  %0 = arch.conv %x {out_channels = 8, kernel = 1} layer "conv1" first : tensor<?x4x4x8xf32>
  // expected-error@+1 {{layer 'gap1': trc cannot compile arch.gap yet}}
  %1 = arch.gap %0 layer "gap1" : tensor<?x1x1x8xf32>
  arch.output %1
}

// -----

arch.model @structure(%x: tensor<?x1x1x8xf32>) {
  // expected-error@+1 {{arch.seq is still there: run arch-plan first}}
  %0 = arch.seq %x layer "s" (%a) {
    %1 = arch.relu %a
    arch.yield %1
  }
  arch.output %0
}
