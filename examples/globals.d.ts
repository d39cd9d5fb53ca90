/** The address of the node, which run.mjs puts in. */
declare const NODE: string;
